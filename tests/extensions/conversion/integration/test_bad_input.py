"""Every format, with weights that are truncated or damaged: an error message, and no file left."""

import os
import re
import zipfile

import numpy as np
import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from tests.foreign_models import (
    MAKERS,
    OPTIONS,
    SIZES,
    change_arrays,
    change_entries,
    check_mutations,
)
from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import READERS, WRITERS
from vanilla_transformer.loading.model_folders import save_model_folder


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_bits_at_the_start(path):
    content = bytearray(path.read_bytes())
    for position in range(min(64, len(content))):
        content[position] ^= 0xFF
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


DAMAGES = [cut_off, flip_bits_at_the_start, empty]


def write_command(form, folder, tmp_path):
    """Return the words of the command that writes a model of a folder in a format."""
    target = str(tmp_path / "theirs")
    return ["convert", str(folder), target, "--target_format", form]


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
def test_writers_refuse_damaged_weights(form, damage, tiny_tokenizer, tmp_path, capsys):
    tiny_model().save_pretrained(tmp_path / "ours")
    tiny_tokenizer.save_pretrained(tmp_path / "ours")
    damage(tmp_path / "ours" / "model.safetensors")
    command = write_command(form, tmp_path / "ours", tmp_path)
    assert "truncated or corrupt" in assert_refused(command, capsys, tmp_path)


# A format, fields of a model that it cannot represent, and words of the message, in which the
# reasons are in order.
UNLIKE = {"normalize_before": True, "position_embedding_type": "learned"}
UNLIKE["attention_value_dim"] = 4
OTHER_HEADS = {"decoder_attention_heads": 4, "attention_key_dim": 4}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 310}
NOT_REPRESENTED = [
    ("marian", {"source_eos": False}, "its sources have no EOS"),
    ("ctranslate2", {"source_eos": False}, "its sources have no EOS"),
    ("onnx", {"source_eos": False}, "its sources have no EOS"),
    (
        "marian",
        {"sinusoid_layout": "tensor2tensor"},
        r"sinusoids are not the paper's \(`sinusoid_layout`\)",
    ),
    (
        "marian",
        UNLIKE,
        r"normalizes before .*; its positions are no sinusoids .*; .*`attention_value_dim`",
    ),
    (
        "ctranslate2",
        {"activation_function": "tanh", "position_embedding_type": "none", **OTHER_HEADS},
        r"activation function is 'tanh'; .*numbers of heads; .*no positions; .*attention_key_dim",
    ),
    ("ctranslate2", SEPARATE, "vocabularies of source and target have other sizes"),
    ("marian", SEPARATE, "vocabularies of source and target have other sizes"),
    (
        "transformers.js",
        {"source_eos": False},
        "transformers.js cannot represent this model: its sources have no EOS",
    ),
    ("transformers.js", {"attention_key_dim": 4}, "its heads have separate widths"),
]


@pytest.mark.parametrize(("form", "changes", "words"), NOT_REPRESENTED)
def test_writers_list_every_reason_and_write_nothing(
    form, changes, words, tiny_tokenizer, tmp_path, capsys
):
    folder = save_model_folder(tiny_model(**changes), tiny_tokenizer, tmp_path / "ours")
    command = write_command(form, folder, tmp_path)
    assert re.search(words, assert_refused(command, capsys, tmp_path))


@pytest.mark.parametrize("form", WRITERS)
def test_writers_refuse_missing_weights_and_other_model_types(form, tmp_path, capsys):
    tiny_model().config.save_pretrained(tmp_path / "bare")
    config = MarianConfig(**SIZES, pad_token_id=0, decoder_start_token_id=0)
    MarianMTModel(config).save_pretrained(tmp_path / "other")
    for name, said in (("bare", "model.safetensors"), ("other", "marian")):
        command = write_command(form, tmp_path / name, tmp_path)
        assert said in assert_refused(command, capsys, tmp_path)


def remove(name):
    return lambda folder: (folder / name).unlink()


def replace(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def change_lines(name, pattern, by):
    def change(folder):
        text = (folder / name).read_text()
        text = re.sub(pattern, by, text, count=1, flags=re.MULTILINE)
        (folder / name).write_text(text)

    return change


def drop_norm_bias(folder):
    """Remove a tensor that, unlike the bias of a projection, every model has."""
    content = torch.load(folder / "model.pt", weights_only=False)
    del content["model"]["encoder.layer_norm.bias"]
    torch.save(content, folder / "model.pt")


def declare_too_much(folder):
    shape = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % 10**17
    header = b"\x93NUMPY\x01\x00\x76\x00" + shape
    with zipfile.ZipFile(folder / "model.npz", "w") as archive:
        archive.writestr("weight.npy", header.ljust(127) + b"\n")


DAMAGED = "a file is damaged or of another format"
SIDES = ("model/encoder", "model/decoder")
UNLIKE_MARIAN = {
    "transformer-decoder-autoreg": "rnn",
    "transformer-ffn-activation": "tanh",
    "transformer-postprocess": "an",
}
UNLIKE_FAIRSEQ = {"layernorm_embedding": True, "activation_fn": "linear"}
UNLIKE_FAIRSEQ["decoder_embed_dim"] = 8
UNLIKE_OPENNMT = {"pos_ffn_activation_fn": "silu", "max_relative_positions": 20}
UNLIKE_OPENNMT |= {"src_subword_model": ""}
UNLIKE_OPENNMT["data"] = {"corpus": {"transforms": ["onmt_tokenize"]}}
# Files of fairseq, of which each line has a form, with lines that have another.
DAMAGED_LINES = [
    (name, content)
    for name in ("dict.de.txt", "dict.en.txt", "bpecodes")
    for content in (b"", b"\x80\x00", b"a\n", b"a: &a [x,x,x]", b'{"a": {"b": [1]}}')
]
# A format, the damage to a folder of it, and words of the message.
REFUSALS = [
    ("marian-npz", change_arrays(options="a: ["), [DAMAGED]),
    ("marian-npz", change_arrays(options="- a"), ["options and their values, got ['a']"]),
    ("marian-npz", change_arrays(options={"dim-emb": None}), []),
    ("marian-npz", change_lines("model.vocab.yml", "^.?</s>", "x"), []),
    ("marian-npz", change_lines("model.vocab.yml", ": 3$", ": three"), []),
    ("marian-npz", remove("model.npz"), ["one file *.npz"]),
    ("marian-npz", remove("model.vocab.yml"), ["one file *.yml"]),
    ("marian-npz", remove("target.spm"), ["neither target.spm nor vocab.spm"]),
    ("marian-npz", change_arrays(without=[OPTIONS]), ["must contain Marian's options"]),
    (
        "marian-npz",
        change_arrays(encoder_l9_gate=np.zeros(3)),
        ["it has unknown weights ['encoder_l9_gate']"],
    ),
    (
        "marian-npz",
        change_arrays(without=["decoder_l1_ffn_b2"]),
        ["no weights for ['decoder_l1_ffn_b2']"],
    ),
    ("marian-npz", declare_too_much, []),
    (
        "marian-npz",
        change_arrays(options=UNLIKE_MARIAN),
        [
            "is 'rnn', not 'self-attention'; `transformer-ffn-activation` is 'tanh', not 'relu' or",
            "its normalization",
        ],
    ),
    ("joeynmt", replace("config.yaml", b""), ["options and their values, got None"]),
    ("joeynmt", replace("config.yaml", b"a: ["), [DAMAGED]),
    ("joeynmt", change_lines("config.yaml", "^data:", "date:"), ["an entry 'data' is missing"]),
    ("joeynmt", change_entries("config.yaml", *SIDES, num_heads={}), []),
    ("joeynmt", remove("best.ckpt"), ["best.ckpt"]),
    ("joeynmt", remove("trg_vocab.txt"), ["trg_vocab"]),
    ("joeynmt", remove("sp.model"), ["elsewhere/sp.model"]),
    (
        "joeynmt",
        change_entries("config.yaml", *SIDES, alpha=0.5, activation="tanh"),
        ["`activation` is 'tanh', not 'relu' or 'gelu' or 'swish'; `alpha` is 0.5, not 1.0"],
    ),
    (
        "joeynmt",
        change_entries("config.yaml", "data/src", level="word", lowercase=True),
        ["`level` is 'word', not 'bpe'; `lowercase` is True"],
    ),
    ("fairseq", change_entries("checkpoint_best.pt", model=3), []),
    ("fairseq", remove("checkpoint_best.pt"), ["one checkpoint"]),
    ("fairseq", remove("dict.de.txt"), ["dict.de.txt"]),
    ("fairseq", remove("bpecodes"), ["bpecodes"]),
    (
        "fairseq",
        change_entries(
            "checkpoint_best.pt", "model", **{"encoder.layers.0.gate.weight": torch.zeros(1)}
        ),
        ["unknown weights ['encoder.layers.0.gate.weight']"],
    ),
    (
        "fairseq",
        change_entries("checkpoint_best.pt", "cfg/model", **UNLIKE_FAIRSEQ),
        [
            "`embed_dim` of encoder and decoder differ; `activation_fn` is 'linear'",
            "; `layernorm_embedding` is True",
        ],
    ),
    ("opennmt-py", change_entries("model.pt", opt=os.getcwd), ["cannot be read safely"]),
    ("opennmt-py", drop_norm_bias, ["no weights for ['encoder.layer_norm.bias']"]),
    ("opennmt-py", remove("model.pt"), ["model.pt"]),
    ("opennmt-py", remove("sp.model"), ["elsewhere/sp.model"]),
    (
        "opennmt-py",
        change_entries("model.pt", "opt", **UNLIKE_OPENNMT),
        [
            "`max_relative_positions` is 20, not 0",
            "'silu'",
            "with onmt_tokenize",
            "not tokenize with SentencePiece",
        ],
    ),
    ("eole", replace("vocab.json", b"{}"), []),
    ("eole", remove("vocab.json"), ["vocab.json"]),
    ("eole", replace("config.json", b"{"), []),
    ("eole", replace("config.json", b"{}"), ["must have eole's format"]),
    ("eole", lambda folder: cut_off(folder / "sp.model"), []),
    (
        "eole",
        lambda folder: None,
        ["must fill the model that the options declare"],
    ),  # it has one tensor
    (
        "eole",
        change_entries(
            "config.json", *SIDES, position_encoding_type="Rotary", mlp_activation_fn="gated-silu"
        ),
        [
            "'Rotary', not 'SinusoidalInterleaved'",
            "`mlp_activation_fn` is 'gated-silu', not 'relu' or 'gelu'",
        ],
    ),
    ("m2m_100", replace("vocab.json", b"[1]"), []),
    *(("fairseq", replace(name, content), [f"{name} must "]) for name, content in DAMAGED_LINES),
    ("joeynmt", replace("config.yaml", b"\x80\x00"), ["config.yaml must be "]),
    ("joeynmt", replace("src_vocab.txt", b""), ["src_vocab.txt must have the model's"]),
    ("joeynmt", replace("trg_vocab.txt", b'{"a": 1}'), ["trg_vocab.txt must have the model's"]),
    ("eole", replace("vocab.json", b'["a"]'), ["vocab.json must map src and tgt to lists"]),
    ("eole", replace("config.json", b"[1]"), ["config.json must have eole's format"]),
]


@pytest.mark.parametrize(("form", "damage", "words"), REFUSALS)
def test_readers_name_the_mistake_and_write_nothing(
    form, damage, words, text_folder, tmp_path, capsys
):
    MAKERS[form](tmp_path / "theirs", text_folder)
    damage(tmp_path / "theirs")
    source = tmp_path / "theirs" / ("model.pt" if form == "opennmt-py" else "")
    command = ["convert", str(source), str(tmp_path / "ours"), "--source_format", form]
    shown = assert_refused(command, capsys, tmp_path)
    (message,) = (line for line in shown.splitlines() if line.startswith("error: "))
    assert str(tmp_path / "theirs") in message
    assert len(message) < 800
    for word in words:
        assert word in message


@pytest.mark.parametrize("form", MAKERS)
def test_readers_refuse_mutations(form, text_folder, tmp_path, capsys):
    """One of the mutations that `tests/slow` makes."""
    check_mutations(range(1), form, text_folder, tmp_path, capsys)
