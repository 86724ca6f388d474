"""The errors of user's mistakes.

This file travels with a checkpoint, as the modules that raise them do.
"""


class UserError(ValueError):
    """A mistake of the caller: the message states the requirement, the value found and the remedy.

    Commands print it in one line. Any other exception is a bug and ends with a traceback.
    """


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
