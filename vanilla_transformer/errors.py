"""The errors of user's mistakes.

This file travels with a checkpoint, as the modules that raise them do.
"""

from collections.abc import Sequence


class UserError(ValueError):
    """A mistake of the caller: the message states the requirement, the value found and the remedy.

    Commands print it in one line. Any other exception is a bug and ends with a traceback.

    Attributes:
        key: The place of the mistake in a recipe or a request: keys and positions, if it is known.
    """

    key: tuple[str | int, ...] = ()


class UserErrors(UserError):
    """Several mistakes of the caller, each in a line."""

    def __init__(self, mistakes: Sequence[UserError]):
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


class UserFileError(OSError, UserError):
    """A file or a folder that cannot be used as it is."""


class MissingFileError(UserFileError, FileNotFoundError):
    """A file or a folder that is not there."""


class LostProcessError(ChildProcessError, UserError):
    """Another process of the same work that was killed or cannot be reached."""


def is_refusal(error: BaseException) -> bool:
    """Tell whether an error is a mistake of the user or a refusal of the operating system, not a
    bug.
    """
    return isinstance(error, UserError) or (isinstance(error, OSError) and error.errno is not None)
