"""Import lazily, quietly and as commands need it."""

import atexit
import gc
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserFileError

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
    """Tell whether this process is the program `vanilla-transformer`, also by `python -m`.

    Its workers get a copy of `sys.argv`, but `multiprocessing` comes before this package there.
    """
    program = Path((sys.argv or [""])[0]).stem
    is_program = program == "vanilla-transformer"
    if program == "-m":  # Python is looking for the module that it runs
        is_program = ("-m", "vanilla_transformer") in pairwise(sys.orig_argv)
    return is_program and "multiprocessing" not in sys.modules


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
