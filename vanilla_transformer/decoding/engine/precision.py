"""The number formats in which the engine multiplies."""

import copy
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from transformers.utils import logging

from vanilla_transformer.decoding.weight_packing import INPUTS_AT_ONCE, Int8Linear, PackedLinear
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.cores import multiplies
from vanilla_transformer.machine.imports import requires_extra

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

logger = logging.get_logger(__name__)
_Model = TypeVar("_Model", bound=nn.Module)
# The types of weights, which int8 rounds afterwards.
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}
INT8, AUTO = "int8", "auto"


def check_precision(precision: str) -> None:
    """Check the name of a precision, and that its packages are installed."""
    if precision not in (*PRECISIONS, AUTO):
        known = ", ".join(map(repr, [*PRECISIONS, AUTO]))
        raise UserError(f"`precision` must be one of {known}, got {precision!r}.")
    if precision == INT8:
        with requires_extra("int8", '`precision="int8"`'):
            import torchao.quantization  # noqa: F401


def precision_of(model: "DecodedModel") -> str | None:
    """Return the precision of a model's weights, or None if the engine does not know it."""
    for name, dtype in PRECISIONS.items():
        if dtype == getattr(model, "dtype", None):
            return name
    return None


def cast(model: _Model, precision: str) -> _Model:
    """Return the model with contiguous weights of a precision, as `resolve_precision` names it: a
    copy if need be.
    """
    dtype = PRECISIONS[precision]
    if all(weight.dtype == dtype and weight.is_contiguous() for weight in model.parameters()):
        return model
    model = copy.deepcopy(model).to(dtype)
    for weight in model.parameters():  # compiled steps read memory, whatever the strides
        weight.data = weight.data.contiguous()
    return model


def round_to_int8(module: _Model) -> _Model:
    """Return a copy of a module whose linear layers multiply 8-bit integers, by torchao's dynamic
    quantization. On a processor without instructions for them, packed layers become
    [`Int8Linear`].
    """
    if not multiplies(INT8, next(module.parameters()).device):
        # The copy shares the weights.
        module = copy.deepcopy(module, {id(weight): weight for weight in module.parameters()})
        for parent in [*module.modules()]:
            for name, layer in parent.named_children():
                if type(layer) is PackedLinear and layer.in_features % INPUTS_AT_ONCE == 0:
                    setattr(parent, name, Int8Linear(layer))
        return module
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    module = copy.deepcopy(module)
    with torch.no_grad():
        quantize_(module, Int8DynamicActivationInt8WeightConfig())
    return module


def resolve_precision(model: "DecodedModel", precision: str | None) -> str:
    """
    Return a precision: `"auto"` is bfloat16 on devices that multiply it, which is logged, and None
    the model's.

    A processor without instructions for bfloat16 is a warning.
    """
    if precision is None:
        precision = precision_of(model)
        if precision is None:
            raise UserError(
                f"The weights must be float32 or bfloat16, got {model.dtype}. Give a `precision`."
            )
    check_precision(precision)
    if precision == AUTO:
        fast = multiplies("bfloat16", model.device)
        precision, verb = ("bfloat16", "has") if fast else ("float32", "does not have")
        logger.warning_once(
            f'`precision="auto"` is {precision}: this device {verb} instructions for bfloat16.'
        )
    elif (
        model.device.type == "cpu" and precision != INT8 and not multiplies(precision, model.device)
    ):
        logger.warning_once(
            f"This processor has no instructions for {precision} and emulates it, many times more "
            "slowly than float32."
        )
    return precision
