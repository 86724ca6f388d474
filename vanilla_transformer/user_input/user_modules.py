"""Import the modules that users write."""

import importlib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserError

# The variable of the environment that names the file.
USER_MODULE = "VANILLA_TRANSFORMER_USER_MODULE"


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
    imported_path = getattr(before, "__file__", None)
    if path.name and before is not None and imported_path != str(path):
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
        position = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(path):
                position = f"line {frame.lineno}: "
        reason = f"{position}{type(error).__name__}: {error}"
        raise UserError(f"{path} cannot be imported: {reason}") from error


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
    if is_posix:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for name in ("PYTHONSAFEPATH", "PYTHONPATH"):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]
        if is_posix:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
