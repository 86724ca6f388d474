"""Panics of libraries in Rust, such as sentencex and tokenizers, which pyo3 raises as no `Exception`."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reporting_panics(failure: str) -> Iterator[None]:
    """Raise a `ValueError` that begins with `failure` for a panic in the block."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of `pyo3_runtime`, which no one can import
            raise
        raise ValueError(f"{failure}: {error}.") from error
