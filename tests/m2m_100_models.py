"""Random models and tokenizers of transformers' M2M-100 and NLLB."""

import json

import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    NllbTokenizer,
)

from tests.tiny import train_pieces

M2M_SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Grass"]
_SIZES = {"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 32}
_SIZES |= {"decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 24}
_SIZES |= {"d_model": 16, "max_position_embeddings": 256}
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def build_nllb_tokenizer(former_layout=False):
    """Build a tokenizer of single characters and the languages of NLLB; in the former layout they
    come last.
    """
    characters = sorted(set("".join(M2M_SENTENCES)) - {" "} | {"▁"})
    vocabulary = {token: index for index, token in enumerate([*_SPECIAL, *characters])}
    return NllbTokenizer(vocab=vocabulary, merges=[], **{"legacy_behaviour": former_layout})


def build_m2m_tokenizer(folder):
    """Build a tokenizer of a SentencePiece model, and of the languages of M2M-100."""
    pieces = [*_SPECIAL, *train_pieces(folder / "spm", M2M_SENTENCES * 3)[3:]]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    return M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "spm.model"))


def m2m_100(vocab_size, **changes):
    """Return a random model whose vectors are no constants."""
    torch.manual_seed(0)
    config = M2M100Config(vocab_size=vocab_size, init_std=0.3, **_SIZES | changes)
    model = M2M100ForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.1)
    return model
