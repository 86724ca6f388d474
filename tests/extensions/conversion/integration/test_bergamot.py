"""Folders for Bergamot: their layout, the way back, refusals, and int8.

`slow` runs Bergamot and Marian themselves.
"""

import json
import struct

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from transformers import AutoModelForSeq2SeqLM

from tests.marian_files import MARIAN_SENTENCES, marian_folder
from vanilla_transformer.cli import main
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.conversion import READERS, WRITERS, bergamot
from vanilla_transformer.extensions.conversion.bergamot import _find_engines, find_alphas
from vanilla_transformer.extensions.conversion.formats import convert
from vanilla_transformer.extensions.conversion.marian_bin import read_bin, write_bin
from vanilla_transformer.extensions.conversion.marian_npz import MARIAN_NPZ, read_marian_folder
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.loading.model_folders import save_model_folder

FLOAT32, INT8 = "model.bin", "model.intgemm.alphas.bin"


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    """Return a list of what translates with a folder: no engine, whatever this machine has."""
    engines = []
    monkeypatch.setattr(
        bergamot, "_find_engines", lambda folder: ((name, make(folder)) for name, make in engines)
    )
    return engines


@pytest.fixture
def imported(tmp_path):
    """Return a model of Marian with its tokenizer, in a folder of ours and in memory."""
    folder = marian_folder(
        tmp_path / "theirs", single=True, num_pieces=24, **{"transformer-ffn-activation": "relu"}
    )
    model, tokenizer, _ = convert(MARIAN_NPZ, folder)
    tokenizer.init_kwargs["directions"] = [["en", "de"]]
    save_model_folder(model, tokenizer, tmp_path / "ours")
    return model, tokenizer


def translate_in_float32(folder):
    model, tokenizer, _ = convert(MARIAN_NPZ, folder)
    return lambda sentences: bergamot._translate(model, tokenizer, sentences)


def test_to_bergamot_writes_what_marian_npz_reads_bit_for_bit(imported, tmp_path, engines):
    engines.append(("float32", translate_in_float32))
    comparison = WRITERS["bergamot"](tmp_path / "ours", tmp_path / "bergamot", MARIAN_SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical, comparison.chrf) == (3, 3, 100)
    given, found = (read_marian_folder(tmp_path / name) for name in ("theirs", "bergamot"))
    assert given.tokens == found.tokens and given.weights.keys() == found.weights.keys()
    assert all(np.array_equal(array, found.weights[name]) for name, array in given.weights.items())
    READERS["marian-npz"](tmp_path / "bergamot", tmp_path / "again", MARIAN_SENTENCES)
    first, second = (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name) for name in ("ours", "again")
    )
    assert len({(tmp_path / name / "config.json").read_text() for name in ("ours", "again")}) == 1
    assert all(
        torch.equal(tensor, second.state_dict()[name])
        for name, tensor in first.state_dict().items()
    )


def test_to_bergamot_writes_the_files_that_apps_load(imported, tmp_path, capsys):
    command = [
        "convert",
        str(tmp_path / "ours"),
        str(tmp_path / "bergamot"),
        "--target_format",
        "bergamot",
    ]
    assert main(command) == 0
    assert "not compared, because the other toolkit cannot run here" in capsys.readouterr().out
    folder = tmp_path / "bergamot"
    assert {path.name for path in folder.iterdir()} == {
        *(FLOAT32, INT8, "vocab.spm", "lex.bin", "config.yml", "metadata.json", "translate.cjs")
    }
    assert (folder / "vocab.spm").read_bytes() == (tmp_path / "theirs/vocab.spm").read_bytes()
    settings = yaml.safe_load((folder / "config.yml").read_text())
    assert settings["models"] == [INT8] and settings["gemm-precision"] == "int8shiftAlphaAll"
    assert "shortlist" not in settings and not (folder / "lex.bin").read_bytes()
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (
        metadata["hash"] == hash_file(folder / INT8)
        and metadata["byteSize"] == (folder / INT8).stat().st_size
    )
    assert metadata["architecture"] == "tiny" and metadata["modelConfig"]["dim-emb"] == 16
    assert (metadata["sourceLanguage"], metadata["targetLanguage"]) == ("en", "de")
    weights = read_marian_folder(tmp_path / "theirs").weights
    counts = metadata["modelStatistics"]
    assert (
        counts["embeddings_bytes"] == weights["Wemb"].size + 8
    )  # and both factors of the output layer
    assert counts["parameters"] == sum(
        counts[f"{part}_parameters"] for part in ("encoder", "decoder", "embeddings")
    )
    matrices = sum(name[:-1].endswith(("_W", "ffn_W")) for name in weights) + 1
    assert counts["parameters"] == sum(array.size for array in weights.values()) + matrices + 1


def test_to_bergamot_writes_a_shortlist(imported, tmp_path):
    for side in ("en", "de"):
        (tmp_path / side).write_text("".join(f"{sentence}\n" for sentence in MARIAN_SENTENCES))
    command = [
        "convert",
        str(tmp_path / "ours"),
        str(tmp_path / "bergamot"),
        "--target_format",
        "bergamot",
    ]
    assert main([*command, "--shortlist", str(tmp_path / "en"), str(tmp_path / "de")]) == 0
    content = (tmp_path / "bergamot" / "lex.bin").read_bytes()
    *_, offsets, entries = struct.unpack_from("<6Q", content)
    assert (
        offsets == imported[1].pad_token_id + 1
        and len(content) == 48 + 8 * offsets + 4 * entries > 48
    )
    assert yaml.safe_load((tmp_path / "bergamot" / "config.yml").read_text())["shortlist"] == [
        "lex.bin",
        False,
    ]


def test_to_bergamot_starts_from_zero_and_adds_biases(imported, tmp_path):
    """Padding, with which the decoder starts, has any embedding; a model of a recipe has no biases
    of attention.
    """
    _, tokenizer = imported
    torch.manual_seed(0)
    config = imported[0].config
    config.attention_bias = config.lm_head_bias = False
    model = type(imported[0])(config).eval()
    nn.init.normal_(model.model.encoder.embed_tokens.weight, std=0.5)
    folder = save_model_folder(model, tokenizer, tmp_path / "moved")
    WRITERS["bergamot"](folder, tmp_path / "bergamot", MARIAN_SENTENCES)
    converted, again, _ = convert(MARIAN_NPZ, tmp_path / "bergamot")
    batch = again(MARIAN_SENTENCES, padding=True, return_tensors="pt")
    targets = torch.tensor([[config.pad_token_id, 4, 5]] * 3)
    expected, found = (
        each(**batch, decoder_input_ids=targets).logits[..., :-1].log_softmax(-1)
        for each in (model, converted)
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_to_bergamot_rounds_weights_to_half_a_step_and_stores_a_factor_for_each(imported, tmp_path):
    model, tokenizer = imported
    WRITERS["bergamot"](tmp_path / "ours", tmp_path / "bergamot", MARIAN_SENTENCES)
    exact, rounded = (read_bin(tmp_path / "bergamot" / name) for name in (FLOAT32, INT8))
    matrices = {
        name
        for name in exact
        if name == "Wemb" or name.split("_")[-1] in ("Wq", "Wk", "Wv", "Wo", "W1", "W2")
    }
    assert len(matrices) == 1 + 2 * 6 + 10
    factors = {f"{name}_QuantMultA" for name in [*matrices, "none"]}
    assert rounded.keys() == exact.keys() | factors and [*rounded] == [
        *sorted(rounded)[:-1],
        "special:model.yml",
    ]
    assert rounded["none_QuantMultA"] == rounded["Wemb_QuantMultA"]
    for name, array in exact.items():
        step = np.abs(array).max() / 127 if name in matrices else 0
        assert np.abs(rounded[name].astype(float) - array).max() <= step * 0.5001, name
        assert name not in matrices or np.any(rounded[name] != array)
    (tmp_path / "bergamot" / FLOAT32).unlink()  # int8 alone, as Mozilla publishes it, is read, too
    convert(MARIAN_NPZ, tmp_path / "bergamot")


@torch.no_grad()
def test_find_alphas_sees_the_inputs_of_each_matrix(imported):
    model, tokenizer = imported
    batch = tokenizer(MARIAN_SENTENCES[:1], return_tensors="pt")
    options = {"num_beams": 1, "max_new_tokens": 1}
    alphas = find_alphas(model, lambda: model.generate(**batch, **options))
    start = torch.tensor([[model.config.pad_token_id]])
    states = model(**batch, decoder_input_ids=start, output_hidden_states=True)
    for names, state in (
        (
            ("encoder_l1_self_Wq", "encoder_l1_self_Wk", "encoder_l1_self_Wv"),
            states.encoder_hidden_states[0],
        ),
        (("decoder_l1_context_Wk", "decoder_l1_context_Wv"), states.encoder_last_hidden_state),
        (("decoder_l1_self_Wq",), states.decoder_hidden_states[0]),
        (("Wemb",), states.decoder_hidden_states[-1]),
    ):
        assert [alphas[name] for name in names] == pytest.approx(
            [127 / state.abs().max().item()] * len(names), 1e-5
        )


def test_find_alphas_adds_deviations_to_the_mean_of_all_calls():
    model = nn.Module()
    model.lm_head, model.unlike = nn.Linear(1, 1), nn.Linear(1, 1)
    calls = [(model.lm_head, 2.0), (model.lm_head, -4.0), (model.unlike, 0.0)]
    alphas = find_alphas(model, lambda: [module(torch.tensor([value])) for module, value in calls])
    assert [*alphas.values()] == pytest.approx([127 / (3 + 1.1), 127])


def test_sentences_are_translated_within_the_limits_of_marian(imported):
    model, tokenizer = imported
    with torch.no_grad():
        model.lm_head.bias[tokenizer.unk_token_id] = 99
    together = bergamot._translate(model, tokenizer, MARIAN_SENTENCES)
    assert together == [
        bergamot._translate(model, tokenizer, [each])[0] for each in MARIAN_SENTENCES
    ]
    assert any(together)


def test_bergamot_translates_in_node(tmp_path, monkeypatch):
    """Here Node is a script that writes large letters."""
    script = 'if [ "$1" != -p ]; then echo "$*" >> log; tr a-z A-Z; fi'
    (tmp_path / "node").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    engines = dict(_find_engines(tmp_path))
    assert [engines[name](["a dog", "", "ü"]) for name in ("float32", "int8")] == [
        ["A DOG", "", "ü"]
    ] * 2
    program = tmp_path / "translate.cjs"
    assert (tmp_path / "log").read_text() == f"{program} float32\n{program} int8\n"
    (tmp_path / "node").write_text("#!/bin/sh\necho no >&2\necho memory >&2\nexit 3\n")
    with pytest.raises(
        UserError, match="Bergamot in Node must translate .* but ended with: no memory"
    ):
        engines["int8"](["a"])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_to_bergamot_writes_no_float32_that_translates_otherwise(
    dtype, imported, tmp_path, engines
):
    engines.append((dtype, lambda folder: lambda sentences: ["x"] * len(sentences)))
    convert = (WRITERS["bergamot"], tmp_path / "ours", tmp_path / "bergamot", MARIAN_SENTENCES)
    if dtype == "int8":
        assert convert[0](*convert[1:]).num_identical == 0
        return
    with pytest.raises(
        ValueError, match="must compute what the original does, but does not: 0 of 3 outputs"
    ):
        convert[0](*convert[1:])
    assert not (tmp_path / "bergamot").exists()


# Changes of a model, and the words of the message: the field or the key of a recipe.
REFUSED = [
    ({"normalize_before": True}, "`normalize_before` is True, not False"),
    ({"tie_word_embeddings": False}, "`tie_word_embeddings` is False, not True"),
    ({"share_encoder_decoder_embeddings": False}, "`share_encoder_decoder_embeddings` is False"),
    ({"scale_embedding": False}, "`scale_embedding` is False"),
    ({"activation_function": "gelu"}, "`activation_function` is 'gelu', not 'relu'"),
    ({"d_model": 12}, "`d_model` is no multiple of 8"),
    ({"decoder_ffn_dim": 12}, "`decoder_ffn_dim` is no multiple of 8"),
    ({"sinusoid_layout": "interleaved"}, "`sinusoid_layout` is 'interleaved', not 'tensor2tensor'"),
    ({"position_embedding_type": "none"}, "`position_embedding_type` is 'none', not 'sinusoidal'"),
    (
        {"position_embedding_type": "learned"},
        "`position_embedding_type` is 'learned', not 'sinusoidal'",
    ),
    ({"decoder_attention_heads": 4}, "`decoder_attention_heads`"),
    ({"attention_key_dim": 4}, "`attention_key_dim`"),
    ({"source_eos": False}, "`source_eos`"),
    ({"pad_token_id": 3}, "its tokens are not the pieces"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_to_bergamot_names_what_it_cannot_hold(changes, words, imported, tmp_path):
    model, tokenizer = imported
    config = type(model.config)(**model.config.to_dict() | changes)
    folder = save_model_folder(type(model)(config), tokenizer, tmp_path / "other")
    with pytest.raises(ValueError, match="Bergamot cannot represent this model: .*") as refused:
        WRITERS["bergamot"](folder, tmp_path / "bergamot", MARIAN_SENTENCES)
    assert words in str(refused.value)
    assert not (tmp_path / "bergamot").exists()


def test_to_bergamot_names_vocabularies_that_it_cannot_hold(imported, tiny_tokenizer, tmp_path):
    model, tokenizer = imported
    tokenizer.add_tokens(["<x>"])
    model.generation_config.forced_bos_token_id = 3
    sides = convert(MARIAN_NPZ, marian_folder(tmp_path / "sides")).tokenizer
    uneven = convert(
        MARIAN_NPZ, marian_folder(tmp_path / "uneven", single=True, num_pieces=25)
    ).tokenizer
    for other, words in (
        (tokenizer, "its tokens are not the pieces"),
        (tokenizer, "`forced_bos_token_id`"),
        (tiny_tokenizer, "`tokenizer_model: sentencepiece`"),
        (sides, "`tokenizer_model: sentencepiece`"),
        (uneven, "`vocab_size` gives 25 pieces, no multiple of 8"),
    ):
        folder = save_model_folder(
            model, other, tmp_path / f"ours of {words[:30]} {type(other).__name__}"
        )
        with pytest.raises(ValueError, match="Bergamot cannot represent this model: .*") as refused:
            WRITERS["bergamot"](folder, tmp_path / "bergamot", MARIAN_SENTENCES)
        assert words in str(refused.value)


@pytest.mark.parametrize(("length", "start"), [(194, 256), (195, 512)])
def test_write_bin_has_the_layout_of_marian(length, start, tmp_path):
    """Data begin at multiples of 256 bytes; Marian writes a gap of 256 where none is needed."""
    name, array = "W" * length, np.arange(100, dtype=np.float32)
    write_bin(tmp_path / "model.bin", {name: array})
    content = (tmp_path / "model.bin").read_bytes()
    assert struct.unpack_from("<6Q", content) == (1, 1, length + 1, 0x0404, 1, 512)
    assert content[48 : 48 + length + 1] == name.encode() + b"\0"
    assert struct.unpack_from("<iQ", content, 49 + length) == (100, start - 61 - length)
    assert content[start : start + 400] == array.tobytes() and content[start + 400 :] == bytes(112)
    assert np.array_equal(read_bin(tmp_path / "model.bin")[name], array)


def test_write_bin_stores_int8_by_outputs_with_its_factor(tmp_path):
    matrix = np.array([[1, -2], [3, 4], [0, 5]], np.float32)
    write_bin(tmp_path / "model.bin", {"l1_W1": matrix, "Wemb": matrix}, {"l1_W1", "Wemb"})
    content = (tmp_path / "model.bin").read_bytes()
    for start, expected in ((256, matrix.T), (512, matrix)):
        values = np.frombuffer(content, np.int8, 6, start)
        assert values.tolist() == np.rint(expected.flatten() * 127 / 5).tolist()
        assert struct.unpack_from("<f", content, start + 6) == (np.float32(127) / np.float32(5),)


def test_marian_npz_refuses_damaged_binary_files_in_one_line(imported, tmp_path, capsys):
    WRITERS["bergamot"](tmp_path / "ours", tmp_path / "bergamot", MARIAN_SENTENCES)
    capsys.readouterr()
    whole = (tmp_path / "bergamot" / FLOAT32).read_bytes()
    other_type = bytearray(whole)
    other_type[24:32] = struct.pack("<Q", 0x10001)  # int8 of Marian itself
    for content, words in (
        *((whole[:size], "truncated or corrupt") for size in (0, 4, 30, 200, 3000, len(whole) - 1)),
        (b"\2" + whole[1:], "version 1, got version 2"),
        (other_type, "got type 0x10001 of Wemb"),
        (whole[:8] + b"\xff" * 8 + whole[16:], "truncated or corrupt"),
    ):
        (tmp_path / "bergamot" / FLOAT32).write_bytes(content)
        command = [
            "convert",
            str(tmp_path / "bergamot"),
            str(tmp_path / "out"),
            "--source_format",
            "marian-npz",
        ]
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert (
            words in line and str(tmp_path / "bergamot") in line and not (tmp_path / "out").exists()
        )
