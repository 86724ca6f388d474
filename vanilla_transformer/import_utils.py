"""Optional dependencies: one error message for a missing extra."""

from collections.abc import Iterator
from contextlib import contextmanager


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
