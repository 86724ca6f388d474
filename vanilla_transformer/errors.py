"""The errors of user's mistakes, which commands print in one line."""

from .compatibility_vanilla_transformer import UserError

__all__ = ["UserError"]
