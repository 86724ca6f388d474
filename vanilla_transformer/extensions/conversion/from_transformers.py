"""Load translation models of transformers as models of this package, without writing a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    M2M100ForConditionalGeneration,
    MarianMTModel,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .common import load_model
from .fairseq import load_fsmt_tokenizer, model_from_fsmt
from .m2m_100 import model_from_m2m_100
from .marian import model_from_marian

# By the type of the model: its class in transformers, and the function that converts it.
_CONVERTERS: dict[str, tuple[Any, Callable[[Any], VanillaTransformerForConditionalGeneration]]] = {
    "marian": (MarianMTModel, model_from_marian),
    "fsmt": (FSMTForConditionalGeneration, model_from_fsmt),
    "m2m_100": (M2M100ForConditionalGeneration, model_from_m2m_100),
}


def load_converted(name: str | Path) -> tuple[VanillaTransformerForConditionalGeneration, Any]:
    """Load a model in float32 and its tokenizer: one of this package, Marian (OPUS-MT), FSMT, M2M-100 or NLLB.

    Args:
        name: A folder, or a name on the Hub.
    """
    config = load_config(name)
    if isinstance(config, VanillaTransformerConfig):
        return load_pretrained(AutoModelForSeq2SeqLM, name, dtype=torch.float32), load_tokenizer(name)
    if config.model_type not in _CONVERTERS:
        known = ", ".join([VanillaTransformerConfig.model_type, *_CONVERTERS])
        raise UserError(f"{name} must be a translation model of type {known}, got type {config.model_type!r}.")
    model_class, convert = _CONVERTERS[config.model_type]
    tokenizer = load_fsmt_tokenizer(name) if config.model_type == "fsmt" else load_tokenizer(name)
    if isinstance(tokenizer, FSMTTokenizer) and tokenizer.encoder != {v: k for k, v in tokenizer.decoder.items()}:
        raise UserError(
            f"{name} must have one vocabulary to be fine-tuned, but its tokenizer has two and encodes sources only."
        )
    return convert(load_model(model_class, name)), tokenizer
