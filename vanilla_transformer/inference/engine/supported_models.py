"""Which models an engine decodes, and how an error names others."""

from typing import Any

from torch import nn

from vanilla_transformer.inference.search.fast_search import is_unchanged
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.modeling_vanilla_transformer_decoder import VanillaTransformerForCausalLM

from .ensemble import Ensemble
from .prefill import reads_padding
from .static_decoder import has_static_form, joined_linears

SUPPORTED = "an unchanged translation model or causal language model of this package"


def is_supported(model: Any) -> bool:
    """Tell whether there is a step that computes the same as a model's own decoder, or the decoders of an ensemble."""
    if isinstance(model, Ensemble):
        return all(map(is_supported, model.models))
    return (
        isinstance(model, VanillaTransformerForConditionalGeneration | VanillaTransformerForCausalLM)
        and has_static_form(model.get_decoder())
        and is_unchanged(model)
        and (getattr(model.config, "source_eos", True) or not reads_padding(model))  # EOS would be padding
        and all(map(_can_join, joined_linears(model.get_decoder())))
    )


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
    if layer_type == "lsh_attention" and not getattr(config, "source_eos", True):
        details.append("with `lsh_attention` and `source_eos=False`")
    if model.training:
        details.append("in training mode")
    return " ".join([type(model).__name__, *details])


__all__ = ["SUPPORTED", "is_supported", "kind_of"]
