"""The error of a user's mistake. This file travels with a checkpoint, as the modules that raise it do."""


class UserError(ValueError):
    """A mistake of the caller: the message states the requirement, the value found and the remedy.

    Commands print it in one line. Any other exception is a bug and ends with a traceback.
    """
