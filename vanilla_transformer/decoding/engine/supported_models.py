"""Which models an engine decodes, and how an error names others."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from transformers.generation import GenerationMixin
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module
from transformers.utils import output_capturing

from vanilla_transformer.decoding.ensemble import Ensemble
from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin, closest
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.modeling_vanilla_transformer_decoder import VanillaTransformerForCausalLM

from .static_decoder import has_static_form, joined_linears

# A class or a model that replaces one of them decodes in its own way.
_METHODS = {"forward", "__call__", *vars(GenerationMixin), *vars(PaperGenerationMixin)} - {"save_pretrained"}
_METHODS -= {name for name in _METHODS if name.startswith("__") and name != "__call__"}
SUPPORTED = "an unchanged translation model or causal language model of this package"


def is_supported(model: Any) -> bool:
    """Tell whether there is a step that computes the same as a model's own decoder, or the decoders of an ensemble."""
    if isinstance(model, Ensemble):
        return all(map(is_supported, model.models))
    return (
        isinstance(model, VanillaTransformerForConditionalGeneration | VanillaTransformerForCausalLM)
        and has_static_form(model.get_decoder())
        and is_unchanged(model)
        and all(map(_can_join, joined_linears(model.get_decoder())))
    )


def submodules(module: nn.Module) -> list[Any]:
    """Return a module and its submodules, in a fifth of the time of `modules()`. Each call waits for this."""
    found: list[Any] = [module]
    for each in found:
        found.extend(child for child in each._modules.values() if child is not None)
    return found


def is_unchanged(model: Any) -> bool:
    """Tell whether nothing but the modules of a model decides what its decoder computes."""
    modules = [model, model.model, *submodules(model.get_decoder()), *submodules(model.lm_head)]
    return (
        model.config._attn_implementation in ("eager", "sdpa")
        and not (model.training or model.config.output_attentions or model.config.output_hidden_states)
        and not any(map(_is_hooked, modules))
        and not _replaces_method(model)
        and not _replaces_method(model.model)
        and not hasattr(model, "hf_device_map")
        and not (model.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(model.device.type))
        and not _decodes_in_step_with_others(model)
    )


def can_encode(model: Any) -> bool:
    """Tell whether an engine computes what the encoder of a supported model computes for a batch with padding."""
    return not any(map(_is_hooked, submodules(model.get_encoder())))


def _replaces_method(module: nn.Module) -> bool:
    """Tell whether a class outside this package, or the module itself, replaces a method that decodes."""
    package, classes = __name__.partition(".")[0], type(module).__mro__
    own = next((each for each in classes if each.__module__.partition(".")[0] == package), None)
    if own is None or any(not _METHODS.isdisjoint(vars(each)) for each in classes[: classes.index(own)]):
        return True
    given = {name: value for name, value in vars(module).items() if name in _METHODS and hasattr(own, name)}
    # PEFT puts a bound method back.
    return any(getattr(value, "__func__", value) is not getattr(own, name) for name, value in given.items())


def _is_hooked(module: Any) -> bool:
    """
    Tell whether anything runs around a module's `forward`, besides the library's own recording of outputs.

    The search here calls some modules of the decoder with other shapes, less often, or not at all.
    """
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    hooks += [*global_hooks._global_forward_hooks.values(), *global_hooks._global_forward_pre_hooks.values()]
    return "forward" in vars(module) or any(hook.__module__ != output_capturing.__name__ for hook in hooks)


def _decodes_in_step_with_others(model: Any) -> bool:
    """Tell whether all processes have to call a sharded model equally often."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    several = several and torch.distributed.get_world_size() > 1
    return several and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model))


def fits_positions(config: Any, levels: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether no hypothesis can outgrow learned positions, of which the library warns."""
    if config.position_embedding_type != "learned":
        return True
    name, new = "decoder_input_ids" if config.is_encoder_decoder else "input_ids", closest(levels, "max_new_tokens")
    prompt = levels[0].get(name)
    if new is None:
        return (closest(levels, "max_length") or 0) <= config.max_position_embeddings
    return (1 if prompt is None else prompt.shape[1] + 1) + new <= config.max_position_embeddings


def _can_join(linear: Any) -> bool:
    """Tell whether a layer is only a product: no adapter and no other type of weight."""
    return type(linear) is nn.Linear and type(linear.weight) is nn.Parameter


def kind_of(model: Any) -> str:
    """Name a model in an error: its class, and what the engine does not support if that can be seen."""
    if isinstance(model, Ensemble):
        return next((kind_of(each) for each in model.models if not is_supported(each)), "an ensemble")
    if not isinstance(model, nn.Module):
        return type(model).__name__
    config = getattr(model, "config", None)
    layer_type, details = (getattr(config, "layer_types", None) or [""])[0], []
    if layer_type == "transfo_xl_attention":
        details.append("with `transfo_xl_attention`")
    if model.training:
        details.append("in training mode")
    return " ".join([type(model).__name__, *details])
