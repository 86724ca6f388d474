"""Which models an engine decodes, and how an error names others."""

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from transformers.generation import GenerationMixin
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module
from transformers.utils import output_capturing

from vanilla_transformer.decoding.ensemble import Ensemble
from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerDecoder,
    VanillaTransformerDecoderLayer,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.modeling_vanilla_transformer_decoder import (
    VanillaTransformerDecoderModel,
    VanillaTransformerForCausalLM,
)
from vanilla_transformer.modeling_vanilla_transformer_long import (
    VanillaTransformerLongDecoder,
    VanillaTransformerLongDecoderLayer,
    VanillaTransformerLongDecoderModel,
)

from .static_decoder import CROSS_ATTENTIONS, SELF_ATTENTIONS

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

_DECODERS: tuple[type, ...] = (
    VanillaTransformerDecoder,
    VanillaTransformerDecoderModel,
    VanillaTransformerLongDecoder,
    VanillaTransformerLongDecoderModel,
)
_LAYERS = (VanillaTransformerDecoderLayer, VanillaTransformerLongDecoderLayer)
# A class or a model that replaces one of them decodes in its own way.
METHODS = {"forward", "__call__", *vars(GenerationMixin), *vars(PaperGenerationMixin)} - {
    "save_pretrained"
}
METHODS -= {name for name in METHODS if name.startswith("__") and name != "__call__"}
SUPPORTED = "an unchanged translation model or causal language model of this package"


def is_supported(model: "DecodedModel") -> bool:
    """Tell whether an engine computes the same as a model itself, or as the models of an
    ensemble.
    """
    if isinstance(model, Ensemble):
        return all(map(is_supported, model.models))
    if not isinstance(
        model, VanillaTransformerForConditionalGeneration | VanillaTransformerForCausalLM
    ):
        return False
    decoder, config = model.get_decoder(), model.config
    is_known_attention = config._attn_implementation in ("eager", "sdpa")
    if type(decoder) not in _DECODERS or not is_known_attention:
        return False
    returns_more = config.output_attentions or config.output_hidden_states
    if model.training or returns_more or hasattr(model, "hf_device_map"):
        return False
    for layer in decoder.layers:
        cross_attention = type(layer.encoder_attn) if layer.has_cross_attention else None
        if type(layer) not in _LAYERS or type(layer.self_attn) not in SELF_ATTENTIONS:
            return False
        if cross_attention is not None and cross_attention not in CROSS_ATTENTIONS:
            return False
        static_attention = SELF_ATTENTIONS[type(layer.self_attn)]
        # The weights of these are joined. One may be an adapter, for example.
        for linear in static_attention.inputs_of(layer.self_attn):
            if type(linear) is not nn.Linear or type(linear.weight) is not nn.Parameter:
                return False
    # Processes that share a sharded model have to call it equally often.
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    several = several and torch.distributed.get_world_size() > 1
    if several and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)):
        return False
    if any(map(is_hooked, model.modules())):
        return False
    return not (_replaces_method(model) or _replaces_method(model.model))


def _replaces_method(module: nn.Module) -> bool:
    """Tell whether a class outside this package, or the module itself, replaces a method that
    decodes.
    """
    package, classes = __name__.partition(".")[0], type(module).__mro__
    for base in classes:
        if base.__module__.partition(".")[0] == package:
            break
        if not METHODS.isdisjoint(vars(base)):
            return True
    else:
        return True
    for name, value in vars(module).items():
        if name not in METHODS or not hasattr(base, name):
            continue
        # PEFT puts a bound method back.
        if getattr(value, "__func__", value) is not getattr(base, name):
            return True
    return False


def is_hooked(module: nn.Module) -> bool:
    """
    Tell whether anything runs around a module's `forward`, besides the library's own recording of
    outputs.

    The search here calls some modules of the decoder with other shapes, less often, or not at all.
    """
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    hooks += global_hooks._global_forward_hooks.values()
    hooks += global_hooks._global_forward_pre_hooks.values()
    if "forward" in vars(module):
        return True
    return any(hook.__module__ != output_capturing.__name__ for hook in hooks)


def kind_of(model: "DecodedModel") -> str:
    """Name a model in an error: its class, and what the engine does not support if that can be
    seen.
    """
    if isinstance(model, Ensemble):
        for member in model.models:
            if not is_supported(member):
                return kind_of(member)
        return "an ensemble"
    if not isinstance(model, nn.Module):
        return type(model).__name__
    config = getattr(model, "config", None)
    layer_type, details = (getattr(config, "layer_types", None) or [""])[0], []
    if layer_type == "transfo_xl_attention":
        details.append("with `transfo_xl_attention`")
    if model.training:
        details.append("in training mode")
    return " ".join([type(model).__name__, *details])
