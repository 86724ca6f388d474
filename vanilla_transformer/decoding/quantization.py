"""
Products of 8-bit integers for decoding on a CPU, as a quantization method of transformers.

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, quantization_config=VanillaTransformerInt8Config())

Kept although torchao quantizes as well: without `torch.compile` torchao's int8 is slower than float32.
"""

from typing import Any, TypeVar

import torch
from torch import nn
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .weight_packing import decoder_self_attentions, inputs_of, join_biases

_Model = TypeVar("_Model", bound=nn.Module)
_METHOD = "vanilla_transformer_int8"


@register_quantization_config(_METHOD)
class VanillaTransformerInt8Config(QuantizationConfigMixin):
    """Round the weights of all linear layers to 8 bits on loading, and their inputs at each call."""

    def __init__(self, **kwargs: Any):
        self.quant_method = kwargs.pop("quant_method", _METHOD)


@register_quantizer(_METHOD)
class VanillaTransformerInt8Quantizer(HfQuantizer):
    """Quantize a model when its float weights are loaded. The result is neither trained nor saved."""

    def update_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Load float32, from which weights are rounded."""
        return torch.float32

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        from .engine.precision import INT8, warn_if_emulated

        warn_if_emulated(INT8, model.device)
        return quantize_linears(model)

    def is_serializable(self) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False


class VanillaTransformerInt8Linear(nn.Module):
    """
    `x Wᵀ + b` of 8-bit integers, for inference on a CPU. Several layers of the same input are one product.

    W is rounded once, with a scale for each output, and x at each call, with a scale for each row, so that the result
    of a sentence does not depend on the rest of its batch.

    Args:
        linears (`nn.Linear`): The layers to round. They keep their weights.
    """

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, *linears: nn.Linear):
        super().__init__()
        weight, scale = _round(torch.cat([linear.weight.detach().float() for linear in linears]))
        bias = join_biases(linears)
        self.out_features, self.in_features = weight.shape
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if bias is None else bias.float())

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and hidden_states.requires_grad:
            raise ValueError("An int8 model cannot be trained. Load it without `quantization_config`.")
        rows, scale = _round(hidden_states.reshape(-1, self.in_features).float())
        products = torch._int_mm(rows, self.weight.t()) * scale  # (rows, out), integers times floats
        products = products.mul_(self.scale) if self.bias is None else products.mul_(self.scale).add_(self.bias)
        return products.view(*hidden_states.shape[:-1], self.out_features).to(hidden_states.dtype)


def _round(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return integers from -127 to 127 and the scale of each row to multiply them by."""
    scale = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12).div_(127)
    return rows.div(scale).round_().to(torch.int8), scale


def quantize_linears(model: _Model) -> _Model:
    """Replace every `nn.Linear` of `model` by a `VanillaTransformerInt8Linear` and return the model."""
    for attention in decoder_self_attentions(model):
        attention.qkv_proj = VanillaTransformerInt8Linear(*inputs_of(attention))
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(parent, name, VanillaTransformerInt8Linear(layer))
    return model


__all__ = ["VanillaTransformerInt8Config", "VanillaTransformerInt8Linear", "quantize_linears"]
