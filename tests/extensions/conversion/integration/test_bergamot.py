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
REFUSAL = "Bergamot cannot represent this model: .*"


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    """Return a list of what translates with a folder: no engine, whatever this machine has."""
    engines = []

    def find_engines(folder):
        return ((name, make(folder)) for name, make in engines)

    monkeypatch.setattr(bergamot, "_find_engines", find_engines)
    return engines


@pytest.fixture
def imported(tmp_path):
    """Return a model of Marian with its tokenizer, in a folder of ours and in memory."""
    options = {"single": True, "num_pieces": 24, "transformer-ffn-activation": "relu"}
    folder = marian_folder(tmp_path / "theirs", **options)
    model, tokenizer, _ = convert(MARIAN_NPZ, folder)
    tokenizer.init_kwargs["directions"] = [["en", "de"]]
    save_model_folder(model, tokenizer, tmp_path / "ours")
    return model, tokenizer


def command_line(source, target, *flags):
    """Return the words of the command that converts a folder."""
    return ["convert", str(source), str(target), *map(str, flags)]


def translate_in_float32(folder):
    model, tokenizer, _ = convert(MARIAN_NPZ, folder)
    return lambda sentences: bergamot._translate(model, tokenizer, sentences)


def test_to_bergamot_writes_what_marian_npz_reads(imported, tmp_path, engines):
    engines.append(("float32", translate_in_float32))
    ours, bergamot, again = (tmp_path / name for name in ("ours", "bergamot", "again"))
    comparison = WRITERS["bergamot"](ours, bergamot, MARIAN_SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3)
    assert comparison.chrf == 100
    original = read_marian_folder(tmp_path / "theirs")
    written = read_marian_folder(bergamot)
    assert original.tokens == written.tokens
    assert original.weights.keys() == written.weights.keys()
    for name, array in original.weights.items():
        assert np.array_equal(array, written.weights[name])
    READERS["marian-npz"](bergamot, again, MARIAN_SENTENCES)
    assert (ours / "config.json").read_text() == (again / "config.json").read_text()
    first = AutoModelForSeq2SeqLM.from_pretrained(ours).state_dict()
    second = AutoModelForSeq2SeqLM.from_pretrained(again).state_dict()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])


def test_to_bergamot_writes_the_files_that_apps_load(imported, tmp_path, capsys):
    folder = tmp_path / "bergamot"
    command = command_line(tmp_path / "ours", folder, "--target_format", "bergamot")
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "not compared, because the other toolkit cannot run here" in printed
    names = {"vocab.spm", "lex.bin", "config.yml", "metadata.json", "translate.cjs"}
    assert {path.name for path in folder.iterdir()} == {FLOAT32, INT8, *names}
    vocabulary = (tmp_path / "theirs/vocab.spm").read_bytes()
    assert (folder / "vocab.spm").read_bytes() == vocabulary
    settings = yaml.safe_load((folder / "config.yml").read_text())
    assert settings["models"] == [INT8]
    assert settings["gemm-precision"] == "int8shiftAlphaAll"
    assert "shortlist" not in settings
    assert not (folder / "lex.bin").read_bytes()
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["hash"] == hash_file(folder / INT8)
    assert metadata["byteSize"] == (folder / INT8).stat().st_size
    assert metadata["architecture"] == "tiny"
    assert metadata["modelConfig"]["dim-emb"] == 16
    assert (metadata["sourceLanguage"], metadata["targetLanguage"]) == ("en", "de")
    weights = read_marian_folder(tmp_path / "theirs").weights
    counts = metadata["modelStatistics"]
    # And both factors of the output layer
    assert counts["embeddings_bytes"] == weights["Wemb"].size + 8
    parts = ("encoder", "decoder", "embeddings")
    assert counts["parameters"] == sum(counts[f"{part}_parameters"] for part in parts)
    matrices = [name for name in weights if name[:-1].endswith(("_W", "ffn_W"))]
    num_factors = len(matrices) + 2
    num_weights = sum(array.size for array in weights.values())
    assert counts["parameters"] == num_weights + num_factors


@pytest.mark.sweep
def test_to_bergamot_writes_a_shortlist(imported, tmp_path):
    text = "".join(f"{sentence}\n" for sentence in MARIAN_SENTENCES)
    sides = [tmp_path / "en", tmp_path / "de"]
    for side in sides:
        side.write_text(text)
    folder = tmp_path / "bergamot"
    flags = ["--target_format", "bergamot", "--shortlist", *sides]
    assert main(command_line(tmp_path / "ours", folder, *flags)) == 0
    content = (folder / "lex.bin").read_bytes()
    *_, offsets, entries = struct.unpack_from("<6Q", content)
    assert offsets == imported[1].pad_token_id + 1
    assert len(content) == 48 + 8 * offsets + 4 * entries > 48
    settings = yaml.safe_load((folder / "config.yml").read_text())
    assert settings["shortlist"] == ["lex.bin", False]


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
    batch["decoder_input_ids"] = targets
    scores = []
    for side in (model, converted):
        logits = side(**batch).logits[..., :-1]
        scores.append(logits.log_softmax(-1))
    torch.testing.assert_close(scores[1], scores[0], atol=1e-4, rtol=1e-4)


def test_to_bergamot_rounds_weights_to_half_a_step(imported, tmp_path):
    """It stores a factor for each matrix."""
    model, tokenizer = imported
    folder = tmp_path / "bergamot"
    WRITERS["bergamot"](tmp_path / "ours", folder, MARIAN_SENTENCES)
    exact, rounded = read_bin(folder / FLOAT32), read_bin(folder / INT8)
    ends = ("Wemb", "Wq", "Wk", "Wv", "Wo", "W1", "W2")
    matrices = {name for name in exact if name.split("_")[-1] in ends}
    assert len(matrices) == 1 + 2 * 6 + 10
    factors = {f"{name}_QuantMultA" for name in [*matrices, "none"]}
    assert rounded.keys() == exact.keys() | factors
    assert [*rounded] == [*sorted(rounded)[:-1], "special:model.yml"]
    assert rounded["none_QuantMultA"] == rounded["Wemb_QuantMultA"]
    for name, array in exact.items():
        step = np.abs(array).max() / 127 if name in matrices else 0
        difference = np.abs(rounded[name].astype(float) - array)
        assert difference.max() <= step * 0.5001, name
        assert name not in matrices or np.any(rounded[name] != array)
    # int8 alone, as Mozilla publishes it, is read, too.
    (folder / FLOAT32).unlink()
    convert(MARIAN_NPZ, folder)


@torch.no_grad()
def test_find_alphas_sees_the_inputs_of_each_matrix(imported):
    model, tokenizer = imported
    batch = tokenizer(MARIAN_SENTENCES[:1], return_tensors="pt")
    options = {"num_beams": 1, "max_new_tokens": 1}
    alphas = find_alphas(model, lambda: model.generate(**batch, **options))
    start = torch.tensor([[model.config.pad_token_id]])
    states = model(**batch, decoder_input_ids=start, output_hidden_states=True)
    encoder, decoder = states.encoder_hidden_states, states.decoder_hidden_states
    inputs = {
        "encoder_l1_self_Wq": encoder[0],
        "encoder_l1_self_Wk": encoder[0],
        "encoder_l1_self_Wv": encoder[0],
        "decoder_l1_context_Wk": states.encoder_last_hidden_state,
        "decoder_l1_context_Wv": states.encoder_last_hidden_state,
        "decoder_l1_self_Wq": decoder[0],
        "Wemb": decoder[-1],
    }
    for name, state in inputs.items():
        expected = 127 / state.abs().max().item()
        assert alphas[name] == pytest.approx(expected, 1e-5)


def test_find_alphas_adds_deviations_to_the_mean_of_all_calls():
    model = nn.Module()
    model.lm_head = nn.Linear(1, 1)
    model.unlike = nn.Linear(1, 1)

    def call():
        model.lm_head(torch.tensor([2.0]))
        model.lm_head(torch.tensor([-4.0]))
        model.unlike(torch.tensor([0.0]))

    alphas = find_alphas(model, call)
    expected = 127 / (3 + 1.1)
    assert [*alphas.values()] == pytest.approx([expected, 127])


def test_sentences_are_translated_within_the_limits_of_marian(imported):
    model, tokenizer = imported
    with torch.no_grad():
        model.lm_head.bias[tokenizer.unk_token_id] = 99
    together = bergamot._translate(model, tokenizer, MARIAN_SENTENCES)
    for sentence, answer in zip(MARIAN_SENTENCES, together, strict=True):
        assert bergamot._translate(model, tokenizer, [sentence]) == [answer]
    assert any(together)


def test_bergamot_translates_in_node(tmp_path, monkeypatch):
    """Here Node is a script that writes large letters."""
    script = 'if [ "$1" != -p ]; then echo "$*" >> log; tr a-z A-Z; fi'
    (tmp_path / "node").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    engines = dict(_find_engines(tmp_path))
    for name in ("float32", "int8"):
        assert engines[name](["a dog", "", "ü"]) == ["A DOG", "", "ü"]
    program = tmp_path / "translate.cjs"
    assert (tmp_path / "log").read_text() == f"{program} float32\n{program} int8\n"
    (tmp_path / "node").write_text("#!/bin/sh\necho no >&2\necho memory >&2\nexit 3\n")
    message = "Bergamot in Node must translate .* but ended with: no memory"
    with pytest.raises(UserError, match=message):
        engines["int8"](["a"])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_float32_that_translates_otherwise_is_refused(dtype, imported, tmp_path, engines):
    def translate(sentences):
        return ["x"] * len(sentences)

    engines.append((dtype, lambda folder: translate))
    folders = (tmp_path / "ours", tmp_path / "bergamot")
    if dtype == "int8":
        comparison = WRITERS["bergamot"](*folders, MARIAN_SENTENCES)
        assert comparison.num_identical == 0
        return
    message = "must compute what the original does, but does not: 0 of 3 outputs"
    with pytest.raises(ValueError, match=message):
        WRITERS["bergamot"](*folders, MARIAN_SENTENCES)
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
    with pytest.raises(ValueError, match=REFUSAL) as refused:
        WRITERS["bergamot"](folder, tmp_path / "bergamot", MARIAN_SENTENCES)
    assert words in str(refused.value)
    assert not (tmp_path / "bergamot").exists()


def test_to_bergamot_names_vocabularies_that_it_cannot_hold(imported, tiny_tokenizer, tmp_path):
    model, tokenizer = imported
    tokenizer.add_tokens(["<x>"])
    model.generation_config.forced_bos_token_id = 3
    folder = marian_folder(tmp_path / "sides")
    sides = convert(MARIAN_NPZ, folder).tokenizer
    folder = marian_folder(tmp_path / "uneven", single=True, num_pieces=25)
    uneven = convert(MARIAN_NPZ, folder).tokenizer
    cases = [
        (tokenizer, "its tokens are not the pieces"),
        (tokenizer, "`forced_bos_token_id`"),
        (tiny_tokenizer, "`tokenizer_model: sentencepiece`"),
        (sides, "`tokenizer_model: sentencepiece`"),
        (uneven, "`vocab_size` gives 25 pieces, no multiple of 8"),
    ]
    for number, (other, words) in enumerate(cases):
        folder = save_model_folder(model, other, tmp_path / f"ours {number}")
        with pytest.raises(ValueError, match=REFUSAL) as refused:
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
    gap = start - 61 - length
    assert struct.unpack_from("<iQ", content, 49 + length) == (100, gap)
    assert content[start : start + 400] == array.tobytes()
    assert content[start + 400 :] == bytes(112)
    assert np.array_equal(read_bin(tmp_path / "model.bin")[name], array)


def test_write_bin_stores_int8_by_outputs_with_its_factor(tmp_path):
    matrix = np.array([[1, -2], [3, 4], [0, 5]], np.float32)
    weights = {"l1_W1": matrix, "Wemb": matrix}
    write_bin(tmp_path / "model.bin", weights, {"l1_W1", "Wemb"})
    content = (tmp_path / "model.bin").read_bytes()
    for start, expected in ((256, matrix.T), (512, matrix)):
        values = np.frombuffer(content, np.int8, 6, start)
        rounded = np.rint(expected.flatten() * 127 / 5)
        assert values.tolist() == rounded.tolist()
        (factor,) = struct.unpack_from("<f", content, start + 6)
        assert factor == np.float32(127) / np.float32(5)


def test_marian_npz_refuses_damaged_binary_files(imported, tmp_path, capsys):
    folder, output = tmp_path / "bergamot", tmp_path / "out"
    WRITERS["bergamot"](tmp_path / "ours", folder, MARIAN_SENTENCES)
    capsys.readouterr()
    whole = (folder / FLOAT32).read_bytes()
    other_type = bytearray(whole)
    other_type[24:32] = struct.pack("<Q", 0x10001)  # int8 of Marian itself
    damages = [
        (b"\2" + whole[1:], "version 1, got version 2"),
        (other_type, "got type 0x10001 of Wemb"),
        (whole[:8] + b"\xff" * 8 + whole[16:], "truncated or corrupt"),
    ]
    for size in (0, 4, 30, 200, 3000, len(whole) - 1):
        damages.append((whole[:size], "truncated or corrupt"))
    for content, words in damages:
        (folder / FLOAT32).write_bytes(content)
        command = command_line(folder, output, "--source_format", "marian-npz")
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line
        assert str(folder) in line
        assert not output.exists()
