"""Convert from `M2M100ForConditionalGeneration` of transformers, the class of M2M-100 and NLLB-200.

It is the Transformer of the paper with pre-norm, biases in its attention, and the positional
encodings of fairseq. The first token of a source names its language. The first token of a
translation, which decoding forces, names the other.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

from transformers import M2M100ForConditionalGeneration

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.text.languages import set_languages

from .common import check_supported, load_model
from .converted_model import ConvertedModel
from .fairseq import FIXED_FIELDS, PAD, SHARED_FIELDS, load_fairseq_weights


def read_m2m_100(name: str | Path, languages: Sequence[str] | None = None) -> ConvertedModel:
    """Read an M2M-100 or NLLB model, such as `facebook/nllb-200-distilled-600M`: a folder, or a
    name on the Hub.

    The tokenizer, with its language codes, and the generation configuration stay the same.

    Args:
        languages: The codes of the source and the target language that the folder translates by
            default, such as `("eng_Latn", "deu_Latn")`. Without them, the folder has the
            tokenizer's source language, and the model chooses the target language.
    """
    original = load_model(M2M100ForConditionalGeneration, name)
    tokenizer = load_tokenizer(name)
    ends_in_eos = tokenizer("a")["input_ids"][-1] == tokenizer.eos_token_id
    check_supported(
        "This package", {"its sources end in the language, not in EOS": not ends_in_eos}
    )
    if languages is not None:
        set_languages(original, tokenizer, *languages)
    return ConvertedModel(model_from_m2m_100(original), tokenizer, original)


def model_from_m2m_100(
    original: M2M100ForConditionalGeneration,
) -> VanillaTransformerForConditionalGeneration:
    """Return the same model with copies of the parameters."""
    theirs = original.config
    reasons = {f"its padding id is not {PAD}": theirs.pad_token_id != PAD}
    reasons["its embeddings are not tied"] = not theirs.tie_word_embeddings
    check_supported("This package", reasons)
    config = VanillaTransformerConfig(
        vocab_size=theirs.vocab_size,
        normalize_before=True,
        init_std=theirs.init_std,
        **{name: getattr(theirs, name) for name in SHARED_FIELDS},
        **FIXED_FIELDS,
    )
    weights = {
        name.removeprefix("model."): tensor for name, tensor in original.state_dict().items()
    }
    del weights["shared.weight"], weights["lm_head.weight"]  # the embedding, which is tied
    model = load_fairseq_weights(config, weights)
    model.generation_config = copy.deepcopy(original.generation_config)
    return model
