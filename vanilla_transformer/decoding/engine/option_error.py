"""The error of options that do not fit, which a service answers without blaming the model."""


class OptionError(ValueError):
    """Raised for options of a request that are out of range, or that do not fit each other or the model."""


__all__ = ["OptionError"]
