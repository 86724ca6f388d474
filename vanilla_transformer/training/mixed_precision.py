"""`mixed_precision`: the precision of autocast, the fastest one for a device, and linear layers in fp8.

Layers in fp8 multiply 8-bit floats (Micikevicius et al., 2022), by torchao.
"""

import logging

import torch
from accelerate import PartialState
from torch import nn

from vanilla_transformer.device_utils import multiplies
from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

logger = logging.getLogger(__name__)

AUTO = "auto"
_LEAST_CAPABILITY = (8, 9)  # Ada Lovelace and Hopper
_UNIT = 16  # of the widths, for the kernels of these GPUs


def resolve_mixed_precision(name: str | None, process: PartialState) -> str | None:
    """Return the mixed precision for Accelerate on the device of a process, and log what `"auto"` is.

    `"auto"` is bf16 where the device has instructions for it, and no, which is float32, elsewhere. `"fp8"` is bf16,
    because its 8-bit layers are a matter of the model (see `TrainState`): Accelerate would fall back to fp16 on older
    GPUs. A warning is logged for bf16 on a processor that emulates it.
    """
    fast = multiplies("bfloat16", process.device)
    if name == AUTO:
        name = "bf16" if fast else "no"
        choice = "bf16: this device has" if fast else "no (float32): this device does not have"
        if process.is_main_process:
            logger.info("`mixed_precision` auto is %s instructions for bf16.", choice)
    elif name == "bf16" and process.device.type == "cpu" and not fast and process.is_main_process:
        logger.warning(
            "This processor has no instructions for bf16 and emulates it, many times more slowly than float32. Use "
            "`mixed_precision: auto`, which is float32 here."
        )
    return "bf16" if name == "fp8" else name


def check_fp8() -> None:
    """Refuse fp8 where the device or the packages do not have it.

    Raises:
        ValueError: there is no GPU, or it does not multiply 8-bit floats.
        OSError: torchao is not installed.
    """
    rule, advice = (
        "`mixed_precision` fp8 needs a GPU of compute capability 8.9 or higher",
        "Use bf16, or leave it out.",
    )
    if not torch.cuda.is_available():
        raise ValueError(f"{rule}, got no GPU of CUDA. {advice}")
    capability = torch.cuda.get_device_capability()
    if capability < _LEAST_CAPABILITY:
        raise ValueError(f"{rule}, got {capability[0]}.{capability[1]}. {advice}")
    with requires_extra("fp8", "`mixed_precision` fp8"):
        import torchao.float8  # noqa: F401


def convert_linear_layers(model: VanillaTransformerForConditionalGeneration) -> None:
    """Let the linear layers of encoder and decoder multiply 8-bit floats, in place.

    Inputs, weights and gradients are rounded for each product, with a scale for each tensor. The parameters stay the
    same float32 tensors. The output projection stays as it is: the loss multiplies by its weight itself.

    Raises:
        ValueError: the width of a layer is not a multiple of 16.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    stacks = model.model
    for name, module in stacks.named_modules():
        if isinstance(module, nn.Linear) and (module.in_features % _UNIT or module.out_features % _UNIT):
            raise ValueError(
                f"`mixed_precision` fp8 needs widths that are multiples of {_UNIT}, got a layer {name} of "
                f"{module.in_features} × {module.out_features}. Change `d_model` and the ffn_dims, or use bf16."
            )
    # The kernels sum over multiples of 16, and a weight's gradient is a sum over the tokens of a batch.
    convert_to_float8_training(stacks, config=Float8LinearConfig(pad_inner_dim=True))


__all__ = ["AUTO", "check_fp8", "convert_linear_layers", "resolve_mixed_precision"]
