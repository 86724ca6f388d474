"""Tiny models, texts and tokenizers, small enough to be built for each test.

Every function takes the fields of its configuration as keyword arguments:
`tiny_model(decoder_layers=2, normalize_before=True)`.
"""

from pathlib import Path
from typing import Any

import torch

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForMaskedLM,
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
    VanillaTransformerLongForCausalLM,
    VanillaTransformerLongForConditionalGeneration,
    VanillaTransformerTokenizer,
    paper_generation_config,
)

TINY_SENTENCES = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "Ein Mann schläft.",
    "Zwei Hunde laufen über das grüne Gras.",
]
TINY_VOCAB_SIZE = 300  # the 256 bytes, the special tokens and some merges

# Sizes that other models of the library (Marian, FSMT) spell in the same way.
ENCODER_SIZES = {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32}
DECODER_SIZES = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32}
TINY_SIZES = {"d_model": 16} | ENCODER_SIZES | DECODER_SIZES

# Wide enough for different inputs to give different outputs.
_SHARED = {"vocab_size": TINY_VOCAB_SIZE, "d_model": 16, "init_std": 0.5}


def tiny_config(**changes: Any) -> VanillaTransformerConfig:
    """Return the configuration of an encoder-decoder with one layer on each side."""
    return VanillaTransformerConfig(**_SHARED | ENCODER_SIZES | DECODER_SIZES | changes)


def tiny_decoder_config(**changes: Any) -> VanillaTransformerDecoderConfig:
    """Return the configuration of a language model with one layer."""
    return VanillaTransformerDecoderConfig(**_SHARED | DECODER_SIZES | changes)


def tiny_encoder_config(**changes: Any) -> VanillaTransformerEncoderConfig:
    """Return the configuration of an encoder with one layer."""
    return VanillaTransformerEncoderConfig(**_SHARED | ENCODER_SIZES | changes)


def tiny_long_config(**changes: Any) -> VanillaTransformerLongConfig:
    """Return the configuration of an encoder-decoder with linear attention."""
    return VanillaTransformerLongConfig(**_SHARED | ENCODER_SIZES | DECODER_SIZES | changes)


def tiny_long_decoder_config(**changes: Any) -> VanillaTransformerLongDecoderConfig:
    """Return the configuration of a language model with linear attention."""
    return VanillaTransformerLongDecoderConfig(**_SHARED | DECODER_SIZES | changes)


def tiny_model(seed: int = 0, **changes: Any) -> VanillaTransformerForConditionalGeneration:
    """Return a random encoder-decoder in evaluation mode that generates at most 4 tokens more than
    its source has.
    """
    torch.manual_seed(seed)
    return _with_paper_decoding(VanillaTransformerForConditionalGeneration(tiny_config(**changes)))


def tiny_long_model(
    seed: int = 0, **changes: Any
) -> VanillaTransformerLongForConditionalGeneration:
    """Return a random encoder-decoder with linear attention, in evaluation mode, with the limit of
    `tiny_model`.
    """
    torch.manual_seed(seed)
    return _with_paper_decoding(
        VanillaTransformerLongForConditionalGeneration(tiny_long_config(**changes))
    )


def tiny_causal_lm(seed: int = 0, **changes: Any) -> VanillaTransformerForCausalLM:
    """Return a random language model in evaluation mode."""
    torch.manual_seed(seed)
    return VanillaTransformerForCausalLM(tiny_decoder_config(**changes)).eval()


def tiny_masked_lm(seed: int = 0, **changes: Any) -> VanillaTransformerForMaskedLM:
    """Return a random masked language model in evaluation mode."""
    torch.manual_seed(seed)
    return VanillaTransformerForMaskedLM(tiny_encoder_config(**changes)).eval()


def tiny_long_causal_lm(seed: int = 0, **changes: Any) -> VanillaTransformerLongForCausalLM:
    """Return a random language model with linear attention, in evaluation mode."""
    torch.manual_seed(seed)
    return VanillaTransformerLongForCausalLM(tiny_long_decoder_config(**changes)).eval()


def tiny_tokenizer(vocab_size: int = TINY_VOCAB_SIZE) -> VanillaTransformerTokenizer:
    """Train a byte-level BPE tokenizer on `TINY_SENTENCES`."""
    from vanilla_transformer.data.tokenizer_training import train_tokenizer

    return train_tokenizer(TINY_SENTENCES * 2, vocab_size=vocab_size)


def write_tiny_corpus(folder: Path) -> Path:
    """Write 40 training and 5 validation pairs of letters and the same in capitals: `train.a`,
    `train.b`, …
    """
    sentences = list[str]()
    for number in range(40):
        letters = ["abcde"[(number * step) % 5] for step in range(1, 3 + number % 4)]
        sentences.append(" ".join(letters))
    for name, lines in (("train", sentences), ("validation", sentences[:5])):
        (folder / f"{name}.a").write_text("\n".join(lines) + "\n")
        (folder / f"{name}.b").write_text("\n".join(lines).upper() + "\n")
    return folder


def _with_paper_decoding(model):
    model.generation_config = paper_generation_config(0, 2, 1, max_new_tokens_beyond_source=4)
    return model.eval()


def train_pieces(prefix, sentences, vocab_size=40, **options):
    """Write `PREFIX.model`, trained on sentences, and return its pieces in the order of their
    ids.
    """
    import sentencepiece  # which machines for tests of a GPU lack

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(prefix),
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    return [model.id_to_piece(index) for index in range(len(model))]
