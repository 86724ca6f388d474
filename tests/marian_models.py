"""Random models and tokenizers of transformers' Marian."""

import json

import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from tests.pieces import train_pieces

MARIAN_SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Grass"]
MARIAN_SIZES = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
}
MARIAN_SIZES |= {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 24, "init_std": 0.3}


def build_marian_tokenizer(folder, sentences=MARIAN_SENTENCES * 3, vocab_size=40):
    """Build a tokenizer as OPUS-MT does: two SentencePiece models, and a vocabulary with other
    ids.
    """
    for side in ("source", "target"):
        pieces = train_pieces(folder / side, sentences, vocab_size)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    names = ["</s>", "<unk>", *pieces[3:], "<pad>"]
    (folder / "vocab.json").write_text(
        json.dumps({name: index for index, name in enumerate(names)})
    )
    return MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    )


def marian_model(size, **changes):
    """Return a random model with a nonzero logit bias."""
    torch.manual_seed(0)
    ids = {
        "pad_token_id": size - 1,
        "eos_token_id": 0,
        "decoder_start_token_id": size - 1,
        "forced_eos_token_id": None,
    }
    model = MarianMTModel(
        MarianConfig(vocab_size=size, activation_function="swish", **MARIAN_SIZES | ids | changes)
    ).eval()
    model.final_logits_bias.normal_()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model
