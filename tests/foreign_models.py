"""Small models of each format that this package converts."""

import torch
from transformers import MarianConfig, MarianMTModel

from tests.fairseq_files import build_fsmt_tokenizer, fairseq_folder, fsmt
from tests.joeynmt_files import joey_folder
from tests.m2m_100_models import build_m2m_tokenizer, m2m_100
from tests.marian_files import marian_folder
from tests.marian_models import build_marian_tokenizer
from tests.opennmt_files import eole_folder, opennmt_checkpoint
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.extensions.conversion.common import rename
from vanilla_transformer.extensions.conversion.joeynmt import JOEYNMT
from vanilla_transformer.extensions.conversion.weight_names import JOEYNMT_NAMES
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SIZES |= {
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "vocab_size": 20,
}


def hugging_face_marian(folder, _):
    folder.mkdir()
    build_marian_tokenizer(folder).save_pretrained(folder)
    MarianMTModel(MarianConfig(**SIZES, pad_token_id=0, decoder_start_token_id=0)).save_pretrained(
        folder
    )
    return folder / "model.safetensors"


def hugging_face_fsmt(folder, _):
    folder.mkdir()
    tokenizer = build_fsmt_tokenizer(folder)
    tokenizer.save_pretrained(folder)
    fsmt(len(tokenizer)).save_pretrained(folder)
    return folder / "model.safetensors"


def hugging_face_m2m_100(folder, _):
    folder.mkdir()
    tokenizer = build_m2m_tokenizer(folder)
    tokenizer.save_pretrained(folder)
    m2m_100(len(tokenizer)).save_pretrained(folder)
    return folder / "model.safetensors"


def joeynmt(folder, _):
    """Write a model of JoeyNMT whose weights are the ones that its configuration needs."""
    joey = joey_folder(folder)
    torch.save({"model_state": {}}, joey / "best.ckpt")
    config = VanillaTransformerConfig(**JOEYNMT.fields(JOEYNMT.read(joey)))
    model = VanillaTransformerForConditionalGeneration(config)
    weights = {rename(name, JOEYNMT_NAMES): tensor for name, tensor in model.state_dict().items()}
    torch.save({"model_state": weights}, joey / "best.ckpt")
    return folder / "best.ckpt"


def opennmt_py(folder, text):
    folder.mkdir()
    return opennmt_checkpoint(text, folder)


# Each function writes a model of the format and returns the file with its weights.
MAKERS = {
    "marian": hugging_face_marian,
    "marian-npz": lambda folder, _: marian_folder(folder) / "model.npz",
    "fsmt": hugging_face_fsmt,
    "m2m_100": hugging_face_m2m_100,
    "fairseq": lambda folder, _: fairseq_folder(folder) / "checkpoint_best.pt",
    "joeynmt": joeynmt,
    "opennmt-py": opennmt_py,
    "eole": lambda folder, text: eole_folder(text, folder) / "model.00.safetensors",
}
