"""Every format, with weights that are truncated or damaged: an error message, and no file left."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from tests.foreign_models import MAKERS, SIZES
from tests.foreign_mutations import check_mutations
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import READERS, WRITERS


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


def set_options(text):
    """Return a function that replaces Marian's options."""

    def damage(folder):
        with np.load(folder / "model.npz") as content:
            arrays = dict(content)
        found = arrays["special:model.yml"].tobytes().rstrip(b"\0").decode()
        changed = text(found) if callable(text) else text
        arrays["special:model.yml"] = np.frombuffer(changed.encode() + b"\0", dtype=np.int8)
        np.savez(folder / "model.npz", **arrays)

    return damage


def change_lines(name, pattern, by):
    return lambda folder: (folder / name).write_text(
        re.sub(pattern, by, (folder / name).read_text(), count=1, flags=re.MULTILINE)
    )


def number_for_model(folder):
    torch.save({"model": 3}, folder / "checkpoint_best.pt")


FOREIGN = {
    "Marian's options are no YAML": ("marian-npz", set_options("a: [")),
    "Marian's options are a list": ("marian-npz", set_options("- a")),
    "Marian's options have no width": ("marian-npz", set_options(lambda text: text.replace("dim-emb", "dim"))),
    "Marian's vocabulary has no EOS": ("marian-npz", change_lines("model.vocab.yml", "^.?</s>", "x")),
    "Marian's vocabulary has text for an id": ("marian-npz", change_lines("model.vocab.yml", ": 3$", ": three")),
    "JoeyNMT's configuration is empty": ("joeynmt", lambda folder: (folder / "config.yaml").write_text("")),
    "JoeyNMT's configuration has no data": ("joeynmt", change_lines("config.yaml", "^data:", "date:")),
    "JoeyNMT's number of heads is a mapping": (
        "joeynmt",
        change_lines("config.yaml", "num_heads: .*", "num_heads: {}"),
    ),
    "fairseq's model is a number": ("fairseq", number_for_model),
    "eole's vocabulary has no source": ("eole", lambda folder: (folder / "vocab.json").write_text("{}")),
    "eole's SentencePiece model is damaged": ("eole", lambda folder: cut_off(folder / "sp.model")),
    "M2M-100's vocabulary is a list": ("m2m_100", lambda folder: (folder / "vocab.json").write_text(json.dumps([1]))),
}


@pytest.mark.parametrize("form, damage", FOREIGN.values(), ids=FOREIGN)
def test_readers_name_the_model_that_is_damaged(form, damage, text_folder, tmp_path, capsys):
    MAKERS[form](tmp_path / "theirs", text_folder)
    damage(tmp_path / "theirs")
    command = ["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--source_format", form]
    shown = assert_refused(command, capsys, tmp_path)
    (message,) = (line for line in shown.splitlines() if line.startswith("error: "))
    assert str(tmp_path / "theirs") in message and len(message) < 600


@pytest.mark.parametrize("form", MAKERS)
def test_readers_refuse_mutations(form, text_folder, tmp_path, capsys):
    """One of the mutations that `tests/slow` makes."""
    check_mutations(range(1), form, text_folder, tmp_path, capsys)
