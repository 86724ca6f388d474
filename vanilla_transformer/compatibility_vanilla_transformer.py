"""The errors of user's mistakes. This file travels with a checkpoint, as the modules that raise them do."""


class UserError(ValueError):
    """A mistake of the caller. Its message states the requirement, the value found and the remedy.

    Commands print it in one line. Any other exception is a bug and ends with a traceback.
    """


class UserFileError(OSError, UserError):
    """A file or a folder that cannot be used as it is. Python callers may catch it as an `OSError`."""
