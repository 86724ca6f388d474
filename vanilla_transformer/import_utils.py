"""Packages that only some users need, imported when they are used."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def requires_extra(extra: str, what: str) -> Iterator[None]:
    """
    Imports within the block are those of an extra of this package.

    Args:
        what: What cannot be had without them, at the beginning of a sentence.

    Raises:
        OSError: one of them is not installed; the text says how to install the extra.
    """
    try:
        yield
    except ImportError as error:
        raise OSError(
            f"{what} is not installed ({error}). Install it with `pip install 'vanilla-transformer[{extra}]'`."
        ) from error
