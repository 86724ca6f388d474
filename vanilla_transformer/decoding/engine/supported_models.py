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
    if type(decoder) not in _DECODERS or config._attn_implementation not in ("eager", "sdpa"):
        return False
    if (
        model.training
        or config.output_attentions
        or config.output_hidden_states
        or hasattr(model, "hf_device_map")
    ):
        return False
    for layer in decoder.layers:
        cross_attention = type(layer.encoder_attn) if layer.has_cross_attention else None
        if type(layer) not in _LAYERS or type(layer.self_attn) not in SELF_ATTENTIONS:
            return False
        if cross_attention is not None and cross_attention not in CROSS_ATTENTIONS:
            return False
        for linear in SELF_ATTENTIONS[type(layer.self_attn)].inputs_of(
            layer.self_attn
        ):  # whose weights are joined
            # It may be an adapter, for example.
            if type(linear) is not nn.Linear or type(linear.weight) is not nn.Parameter:
                return False
    # Processes that share a sharded model have to call it equally often.
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    several = several and torch.distributed.get_world_size() > 1
    if several and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)):
        return False
    return not any(map(is_hooked, model.modules())) and not any(
        map(_replaces_method, (model, model.model))
    )


def _replaces_method(module: nn.Module) -> bool:
    """Tell whether a class outside this package, or the module itself, replaces a method that
    decodes.
    """
    package, classes = __name__.partition(".")[0], type(module).__mro__
    ours = next((base for base in classes if base.__module__.partition(".")[0] == package), None)
    if ours is None or any(
        not METHODS.isdisjoint(vars(base)) for base in classes[: classes.index(ours)]
    ):
        return True
    replaced = {
        name: value
        for name, value in vars(module).items()
        if name in METHODS and hasattr(ours, name)
    }
    # PEFT puts a bound method back.
    return any(
        getattr(value, "__func__", value) is not getattr(ours, name)
        for name, value in replaced.items()
    )


def is_hooked(module: nn.Module) -> bool:
    """
    Tell whether anything runs around a module's `forward`, besides the library's own recording of
    outputs.

    The search here calls some modules of the decoder with other shapes, less often, or not at all.
    """
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    hooks += [
        *global_hooks._global_forward_hooks.values(),
        *global_hooks._global_forward_pre_hooks.values(),
    ]
    return "forward" in vars(module) or any(
        hook.__module__ != output_capturing.__name__ for hook in hooks
    )


def kind_of(model: "DecodedModel") -> str:
    """Name a model in an error: its class, and what the engine does not support if that can be
    seen.
    """
    if isinstance(model, Ensemble):
        return next(
            (kind_of(member) for member in model.models if not is_supported(member)), "an ensemble"
        )
    if not isinstance(model, nn.Module):
        return type(model).__name__
    config = getattr(model, "config", None)
    layer_type, details = (getattr(config, "layer_types", None) or [""])[0], []
    if layer_type == "transfo_xl_attention":
        details.append("with `transfo_xl_attention`")
    if model.training:
        details.append("in training mode")
    return " ".join([type(model).__name__, *details])
