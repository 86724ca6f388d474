"""The fields of the configurations as arguments of a training run, with the help of their docstrings."""

import inspect
import re
from dataclasses import field, fields, make_dataclass
from typing import Any

from transformers import PreTrainedConfig

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig

from .recipe import REMOVED

# Fields of the configuration that follow from the tokenizer and the corpus, or that training does not use.
_DERIVED = {"vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "max_source_length"}
_DERIVED |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "is_encoder_decoder"}
_DERIVED |= {"use_cache", *REMOVED}


def config_fields(config_class: type[PreTrainedConfig]) -> set[str]:
    """Return the names of the fields that this package declares in a configuration."""
    classes = config_class.__mro__[: config_class.__mro__.index(PreTrainedConfig)]
    return {name for each in classes for name in each.__annotations__}


def _model_arguments(name: str, config_class: type[PreTrainedConfig], known: set[str], **defaults: Any) -> Any:
    """Create a dataclass of the fields that `config_class` adds to `known`, with its types, defaults and help.

    Args:
        defaults: By field, where a run has another default than the configuration.
    """
    added = []
    for item in fields(config_class):
        if item.name in config_fields(config_class) - known:
            # A flag reads 0 as 0.0, and takes one type for all layers.
            kinds: dict[Any, Any] = {float | int: float, str | list[str]: str}
            kind = kinds.get(item.type, item.type)
            default = defaults.get(item.name, item.default)
            added.append((item.name, kind, field(default=default, metadata={"help": _help(config_class, item.name)})))
    return make_dataclass(name, added, frozen=True)


def _help(config_class: type, name: str) -> str:
    """Return the first sentences about a field from the `Args` of the configuration's docstring."""
    text = inspect.getdoc(config_class) or ""
    found = re.search(rf"^    (?:\w+, )*{name}(?:, \w+)*(?: \(.*?\))?:((?:.|\n     +)*)", text, re.MULTILINE)
    return f"See {config_class.__name__}." if found is None else " ".join(found[1].split()).replace("%", "%%")


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
ModelArguments = _model_arguments("ModelArguments", VanillaTransformerConfig, _DERIVED)
LongArguments = _model_arguments(
    "LongArguments",
    VanillaTransformerLongConfig,
    config_fields(VanillaTransformerConfig) | REMOVED.keys(),
    layer_types="full_attention",
)
