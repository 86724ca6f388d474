"""Load translation models of transformers as models of this package, without writing a folder."""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    M2M100ForConditionalGeneration,
    MarianMTModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.engine.supported_models import METHODS, is_hooked
from vanilla_transformer.decoding.ensemble import Ensemble
from vanilla_transformer.decoding.pretrained import load_pretrained, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .common import check_supported, reading
from .fairseq import FSMT, load_fsmt_tokenizer
from .formats import Format, convert_checkpoint, library_checkpoint
from .m2m_100 import M2M_100
from .marian import MARIAN

# By the type of the model: its class in transformers, and its format.
_FORMATS: dict[str, tuple[type[PreTrainedModel], Format]] = {
    "marian": (MarianMTModel, MARIAN),
    "fsmt": (FSMTForConditionalGeneration, FSMT),
    "m2m_100": (M2M100ForConditionalGeneration, M2M_100),
}


def convert_model(original: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Return a Marian, FSMT or M2M-100 model as one of this package, with copies of the
    parameters.
    """
    _, form = _FORMATS[original.config.model_type]
    return convert_checkpoint(form, library_checkpoint(original))


def convert_in_memory(original: Any) -> Any:
    """Return Marian, FSMT or M2M-100 as a model of this package, for inference, and another model
    as it is.

    Both share the weights that are the same. A model that would compute something else is refused.
    The adapters of PEFT are merged in a copy.
    """
    if isinstance(original, Ensemble):
        return Ensemble([*map(convert_in_memory, original.models)], original.weights)
    model_type = getattr(getattr(original, "config", None), "model_type", None)
    if model_type not in _FORMATS:
        return original
    model_class, _ = _FORMATS[model_type]
    bare = merge_adapters(original)
    weights, modules = bare.state_dict(), [*original.modules(), *bare.modules()]
    sources = {module.__module__.partition(".")[0] for module in bare.modules()}
    has_methods = not METHODS.isdisjoint(vars(bare))
    is_changed = bool(sources - {"torch", "transformers"}) or has_methods
    dtypes = {parameter.dtype for parameter in bare.parameters()}
    with (
        reading(type(original).__name__, "transformers"),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
    ):
        reasons = {
            f"it is no {model_class.__name__}": type(bare) is not model_class,
            "it is in training mode": original.training,
            "it has adapters or methods of another package": is_changed,
            "it has hooks": any(map(is_hooked, modules)),
            "its weights are of several types": len(dtypes) > 1,
        }
        check_supported("This package", reasons)
        converted = convert_model(bare).to(bare.device, bare.dtype)
        # Not padding, which M2M-100 gives no position.
        ids = torch.arange(2, 10, device=original.device)[None]
        models = (original, converted)
        before, after = (
            model(ids, decoder_input_ids=ids, use_cache=False).logits for model in models
        )
        tolerance = torch.finfo(original.dtype).eps ** 0.5
        absolute = tolerance * before.abs().median().item()
        is_same = torch.allclose(before, after, tolerance, absolute)
        check_supported("This package", {"it computes something else": not is_same})
    for name, weight in converted.named_parameters():
        if torch.equal(same := weights.get(name, weight), weight):
            weight.data = same
    return converted


def merge_adapters(model: PreTrainedModel) -> Any:
    """Return a copy of a model with the adapters of PEFT added to its weights, or a model without
    adapters itself.
    """
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    layers = {}
    for name, module in bare.named_modules():
        if hasattr(module, "get_base_layer") and hasattr(module, "merge"):
            layers[name] = module
    if not layers:
        return model
    changed = {id(weight) for layer in layers.values() for weight in layer.parameters()}
    shared = {}
    for weight in bare.parameters():
        if id(weight) not in changed:
            shared[id(weight)] = weight
    merged = copy.deepcopy(bare, shared)
    for name in layers:
        layer, (parent, _, child) = merged.get_submodule(name), name.rpartition(".")
        layer.merge()
        setattr(merged.get_submodule(parent), child, layer.get_base_layer())
    return merged


def load_converted(
    name: str | Path, config: PreTrainedConfig
) -> tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerBase]:
    """Load a Marian (OPUS-MT), FSMT, M2M-100 or NLLB model as one of this package in float32, and
    its tokenizer.

    Args:
        name: A folder, or a name on the Hub.
        config: Its configuration.
    """
    if config.model_type not in _FORMATS:
        known = ", ".join([VanillaTransformerConfig.model_type, *_FORMATS])
        raise UserError(
            f"{name} must be a translation model of type {known}, got type {config.model_type!r}."
        )
    load = load_fsmt_tokenizer if config.model_type == "fsmt" else load_tokenizer
    tokenizer = load(name)
    if isinstance(tokenizer, FSMTTokenizer) and tokenizer.encoder != {
        v: k for k, v in tokenizer.decoder.items()
    }:
        raise UserError(
            f"{name} must have one vocabulary to be fine-tuned, but its tokenizer has two and "
            "encodes sources only."
        )
    original = load_pretrained(AutoModelForSeq2SeqLM, name, dtype=torch.float32)
    return convert_model(original), tokenizer
