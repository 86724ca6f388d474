"""The number formats in which the engine multiplies, and which of them is the fastest that is accurate enough."""

import copy
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import nn
from transformers.utils import logging

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.device_utils import multiplies
from vanilla_transformer.utils.import_utils import requires_extra

from .machine_cache import identity_of, load_choice, store_choice, values_of

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


def warn_if_emulated(precision: str, device: torch.device) -> None:
    """Log a warning, once, if a device is a processor without instructions for a precision."""
    if device.type == "cpu" and not multiplies(precision, device):
        logger.warning_once(
            f"This processor has no instructions for {precision} and emulates it, many times more slowly than float32."
        )


def precision_of(model: Any) -> str | None:
    """Return the precision of a model's weights, or None if the engine does not know it."""
    return next((name for name, dtype in PRECISIONS.items() if dtype == getattr(model, "dtype", None)), None)


def cast(model: _Model, precision: str) -> _Model:
    """Return the model with contiguous weights of a precision, as `resolve_precision` names it: a copy if need be."""
    check_precision(precision)
    dtype = PRECISIONS[precision]
    if all(weight.dtype == dtype and weight.is_contiguous() for weight in model.parameters()):
        return model
    model = copy.deepcopy(model).to(dtype)
    for weight in model.parameters():  # compiled steps read memory, whatever the strides
        weight.data = weight.data.contiguous()
    return model


def round_to_int8(module: _Model) -> _Model:
    """Return a copy of a module whose linear layers multiply 8-bit integers, by torchao's dynamic quantization."""
    check_precision(INT8)
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    module = copy.deepcopy(module)
    with torch.no_grad():
        quantize_(module, Int8DynamicActivationInt8WeightConfig())
    return module


def measurable_precisions() -> list[str]:
    """Return the precisions that work with the installed packages; the first one is float32."""
    return [name for name in PRECISIONS if name != INT8 or find_spec("torchao") is not None]


def resolve_precision(model: Any, precision: str) -> str:
    """Return a precision, or for `"auto"` the one that [`save_choice`] stored for this model on this machine.

    Without one, `"auto"` is bfloat16 on devices that multiply it, and float32 on others. The choice is logged.
    """
    if precision != AUTO:
        return precision
    precision, reason = load_choice("precision", identity_of(*values_of(model))) or ("", "")
    if precision not in PRECISIONS:
        fast = multiplies("bfloat16", model.device)
        precision = "bfloat16" if fast else "float32"
        reason = f"this device {'has' if fast else 'does not have'} instructions for bfloat16."
    logger.warning_once(f'`precision="auto"` is {precision}: {reason}')
    return precision


def save_choice(model: nn.Module, precision: str, reason: str) -> None:
    """Store the precision that `"auto"` means for this model on this machine, and a sentence that says why."""
    store_choice("precision", identity_of(*values_of(model)), precision, reason)
