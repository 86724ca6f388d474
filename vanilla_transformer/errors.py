"""The errors that commands print in one line. All others are bugs, and end with a traceback."""

from .compatibility_vanilla_transformer import UserError, UserFileError

__all__ = ["LostProcessError", "MissingFileError", "UserError", "UserFileError", "is_refusal"]


class MissingFileError(UserFileError, FileNotFoundError):
    """A file or a folder that is not there."""


class LostProcessError(ChildProcessError, UserError):
    """Another process of the same work that was killed or cannot be reached."""


def is_refusal(error: BaseException) -> bool:
    """Tell whether an error is a mistake of the user or a refusal of the operating system, not a bug."""
    return isinstance(error, UserError) or (isinstance(error, OSError) and error.errno is not None)
