"""Every format, with weights that are truncated or damaged: an error message, and no file left."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from tests.fairseq_files import fairseq_folder, fsmt
from tests.joeynmt_files import joey_folder
from tests.m2m_100_models import m2m_100
from tests.marian_files import marian_folder
from tests.opennmt_files import eole_folder, opennmt_checkpoint
from vanilla_transformer.cli import main
from vanilla_transformer.conversion import READERS, WRITERS

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 20}


def hugging_face_marian(folder, _):
    MarianMTModel(MarianConfig(**SIZES, pad_token_id=0, decoder_start_token_id=0)).save_pretrained(folder)
    return folder / "model.safetensors"


def hugging_face_fsmt(folder, _):
    fsmt(31).save_pretrained(folder)
    return folder / "model.safetensors"


def hugging_face_m2m_100(folder, _):
    m2m_100(31).save_pretrained(folder)
    return folder / "model.safetensors"


def joeynmt(folder, _):
    torch.save({"model_state": {"weight": torch.zeros(1000)}}, joey_folder(folder) / "best.ckpt")
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


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_bits_at_the_start(path):
    content = bytearray(path.read_bytes())
    for place in range(min(64, len(content))):
        content[place] ^= 0xFF
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


DAMAGES = [cut_off, flip_bits_at_the_start, empty]


def assert_refused(command, capsys, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert main(command) == 2
    message = capsys.readouterr().err.strip()
    assert "Traceback" not in message and message
    assert sorted(tmp_path.rglob("*")) == before
    return message


def test_readers_are_all_tested_with_damaged_weights():
    assert MAKERS.keys() == READERS.keys()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("form", MAKERS)
def test_readers_refuse_damaged_weights(form, damage, text_folder, tmp_path, capsys):
    path = MAKERS[form](tmp_path / "theirs", text_folder)
    damage(path)
    source = path if form == "opennmt-py" else path.parent
    command = ["convert", str(source), str(tmp_path / "ours"), "--source_format", form]
    assert str(path.parent) in assert_refused(command, capsys, tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("form", WRITERS)
def test_writers_refuse_damaged_weights(form, damage, tiny_model, tiny_tokenizer, tmp_path, capsys):
    tiny_model.save_pretrained(tmp_path / "ours")
    tiny_tokenizer.save_pretrained(tmp_path / "ours")
    damage(tmp_path / "ours" / "model.safetensors")
    command = ["convert", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--target_format", form]
    assert "truncated or corrupt" in assert_refused(command, capsys, tmp_path)


@pytest.mark.parametrize("form", WRITERS)
def test_writers_refuse_missing_weights_and_other_model_types(form, tiny_model, tmp_path, capsys):
    tiny_model.config.save_pretrained(tmp_path / "bare")
    MarianMTModel(MarianConfig(**SIZES, pad_token_id=0, decoder_start_token_id=0)).save_pretrained(tmp_path / "other")
    for name, said in (("bare", "model.safetensors"), ("other", "marian")):
        command = ["convert", str(tmp_path / name), str(tmp_path / "theirs"), "--target_format", form]
        assert said in assert_refused(command, capsys, tmp_path)
