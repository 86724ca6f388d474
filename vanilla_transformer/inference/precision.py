"""The number formats in which the engine multiplies."""

import copy
from typing import TypeVar

import torch
from torch import nn

_Model = TypeVar("_Model", bound=nn.Module)
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def check_precision(precision: str) -> None:
    """Check the name of a precision.

    Raises:
        ValueError: The precision is unknown.
    """
    if precision not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise ValueError(f"`precision` must be one of {known}, got {precision!r}.")


def cast(model: _Model, precision: str) -> _Model:
    """Return the model with weights of a precision: a copy, unless they have it already.

    Raises:
        ValueError: The precision is unknown.
    """
    check_precision(precision)
    dtype = PRECISIONS[precision]
    if all(weight.dtype == dtype for weight in model.parameters()):
        return model
    return copy.deepcopy(model).to(dtype)


__all__ = ["PRECISIONS", "cast", "check_precision"]
