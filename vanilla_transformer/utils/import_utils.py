"""Imports: fast and quiet ones of large packages, lazy names, files of users, and the message of a
missing extra.
"""

import atexit
import gc
import importlib
import importlib.util
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserError, UserFileError

USER_MODULE = "VANILLA_TRANSFORMER_USER_MODULE"  # the variable of the environment that names it
# Messages of other packages at their import, which users can do nothing about, by the names of
# their loggers.
_IMPORT_MESSAGES = {
    "torchao": ("Failed to load ", "Skipping import of cpp extensions"),
    "torch.utils._pytree": ("register_constant() on Enum subclasses is deprecated",),
}


def hide_import_messages() -> None:
    """Hide messages of other packages at their import."""
    for name in _IMPORT_MESSAGES:
        logging.getLogger(name).addFilter(_concerns_users)


def _concerns_users(
    record: logging.LogRecord,
) -> bool:  # one function, or a second call would add a second filter
    return not any(words in record.getMessage() for words in _IMPORT_MESSAGES[record.name])


@contextmanager
def show_progress() -> Iterator[None]:
    """Print the log messages of the package, without progress bars for each file that transformers
    writes.

    Handlers and a level that the caller has set stay as they are, and so does everything after the
    block.
    """
    from transformers.utils import logging as library

    logging.basicConfig(format="%(message)s")
    package = logging.getLogger("vanilla_transformer")
    had_bars = library.is_progress_bar_enabled()
    level = package.level
    package.setLevel(level or logging.INFO)
    library.disable_progress_bar()
    try:
        yield
    finally:
        package.setLevel(level)
        if had_bars:
            library.enable_progress_bar()


@cache
def freeze_modules() -> None:
    """Leave all objects that exist out of garbage collections: modules are never garbage.

    This saves a quarter of the start and the collection at exit. If there is triton, whose bindings
    print about 25 lines about each of their objects that is left then, it is collected at exit.
    """
    gc.freeze()
    atexit.register(lambda: gc.unfreeze() if "triton" in sys.modules else None)


def lazy_names(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports names at first use, from these
    modules below it.
    """

    def import_name(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        imported = getattr(importlib.import_module(names[name], package), name)
        setattr(sys.modules[package], name, imported)
        return imported

    return import_name, lambda: sorted({*vars(sys.modules[package]), *names})


def is_command_line() -> bool:
    """Tell whether this process is the program `vanilla-transformer`.

    Its workers get a copy of `sys.argv`, but `multiprocessing` comes before this package there.
    """
    return (
        Path((sys.argv or [""])[0]).stem == "vanilla-transformer"
        and "multiprocessing" not in sys.modules
    )


def use_user_module(path: str | Path) -> None:
    """Import a file of a user, which defines classes of models, in this process and all that it
    starts.

    The program does so when it registers the models.
    """
    if Path(path).suffix != ".py" or not Path(path).is_file():
        raise UserError(f"`user_module` must be a file of Python such as my_model.py, got {path}.")
    os.environ[USER_MODULE] = str(Path(path).resolve())
    if "vanilla_transformer.registration" in sys.modules:
        import_user_module()


def import_user_module() -> None:
    """Import the file that [`use_user_module`] names, if there is one."""
    path = Path(os.environ.get(USER_MODULE, ""))
    before = sys.modules.get(path.stem)
    if path.name and before is not None and getattr(before, "__file__", None) != str(path):
        raise UserError(
            f"`user_module` must have another name, since {path.stem!r} is imported. Rename {path}."
        )
    if not path.name or before is not None:
        return
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path.stem])
    except Exception as error:
        del sys.modules[path.stem]
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(path)
        ]
        position = f"line {lines[-1]}: " if lines else ""
        raise UserError(
            f"{path} cannot be imported: {position}{type(error).__name__}: {error}"
        ) from error


def find_object(import_path: str, requirement: str) -> Any:
    """Return the object at an import path such as `my_module:split`.

    A `requirement` begins the message if there is none.
    """
    import_user_module()
    module, _, name = import_path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the module's own, too
        raise UserError(f"{requirement}, got {import_path!r} ({error}).") from error


def child_environment() -> dict[str, str]:
    """Return the environment for a new interpreter: it imports from where this one does, not from
    the current folder.

    `python -m` and `-c` would find `torch.py` beside a downloaded model first.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": path}


@contextmanager
def starting_processes() -> Iterator[None]:
    """Let processes that start inherit that SIGINT is blocked, since Ctrl-C is for their parent.

    They import what this process does, see [`child_environment`].
    """
    before = os.environ.copy()
    os.environ.update(child_environment())
    is_posix = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if is_posix else set()
    try:
        yield
    finally:
        for name in ("PYTHONSAFEPATH", "PYTHONPATH"):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]
        if is_posix:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collection in the block: an eighth of the time of importing torch and
    transformers.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def requires_extra(extra: str, feature: str) -> Iterator[None]:
    """Turn an `ImportError` in the block into a message that names the extra which a feature
    needs.
    """
    try:
        yield
    except ImportError as error:
        raise UserFileError(
            f"{feature} needs packages that are not installed ({error}). "
            f"Install them with `pip install 'vanilla-transformer[{extra}]'`."
        ) from error
