"""Convert from `M2M100ForConditionalGeneration` of transformers, the class of M2M-100 and NLLB-200.

It is the Transformer of the paper with pre-norm, biases in its attention, and the positional
encodings of fairseq. The first token of a source names its language. The first token of a
translation, which decoding forces, names the other.
"""

from collections.abc import Sequence
from pathlib import Path

from transformers import M2M100ForConditionalGeneration

from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.text.languages import set_languages

from .common import load_model
from .fairseq import FIXED_FIELDS, PAD, SHARED_FIELDS, find_fairseq_weight
from .formats import Checkpoint, Format, Options, library_checkpoint, library_search

_ENDS_IN_EOS = "ends_in_eos"  # whether sources do, as their tokenizer encodes them


def read_m2m_100(name: str | Path, languages: Sequence[str] | None = None) -> Checkpoint:
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
    if languages is not None:
        set_languages(original, tokenizer, *languages)
    checkpoint = library_checkpoint(original)
    return checkpoint._replace(
        options={**checkpoint.options, _ENDS_IN_EOS: ends_in_eos},
        build_tokenizer=lambda: tokenizer,
    )


def _reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    options = checkpoint.options
    return {
        "its sources end in the language, not in EOS": not options.get(_ENDS_IN_EOS, True),
        f"its padding id is not {PAD}": options["pad_token_id"] != PAD,
        "its embeddings are not tied": not options["tie_word_embeddings"],
    }


def _fields(checkpoint: Checkpoint) -> Options:
    names = ("vocab_size", "init_std", *SHARED_FIELDS)
    shared = {name: checkpoint.options[name] for name in names}
    return {**shared, **FIXED_FIELDS, "normalize_before": True}


M2M_100 = Format(
    "M2M-100",
    read_m2m_100,
    _reasons,
    _fields,
    library_search,
    find_fairseq_weight,
    unused=r"shared\.weight|lm_head\.weight",  # the embedding, which is tied
)
