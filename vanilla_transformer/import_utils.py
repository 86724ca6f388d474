"""Imports: faster ones of large packages, and one error message for a missing extra."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """
    Pause the garbage collection in the block.

    It takes an eighth of the time of importing torch and transformers, and finds no garbage.
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
    """Turn an `ImportError` in the block into a one-line message that names the extra to install.

    `transformers.utils.requires_backends` knows only the backends of transformers and raises `ImportError`, which
    the command line does not report as a user's mistake.

    Args:
        extra: An extra of this package, such as `"onnx"`.
        feature: The subject of the message, such as `"The ONNX export"`.

    Raises:
        OSError: a package of the extra is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise OSError(
            f"{feature} needs packages that are not installed ({error}). "
            f"Install them with `pip install 'vanilla-transformer[{extra}]'`."
        ) from error
