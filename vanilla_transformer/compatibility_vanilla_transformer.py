"""The errors of user's mistakes. This file travels with a checkpoint, as the modules that raise them do."""


class UserError(ValueError):
    """A mistake of the caller: the message says what must hold, what was found and what to do.

    Commands print it in one line. Any other exception is a bug and ends with a traceback.
    """


class UserFileError(OSError, UserError):
    """A file or a folder that cannot be used as it is. Python callers may catch it as an `OSError`."""
