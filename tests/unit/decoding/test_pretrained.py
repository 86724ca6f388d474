"""Loading for the commands: a model with missing, damaged or meaningless parts is refused."""

import io
import json
import logging
import os
import shutil
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import HTTPError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, MarianMTModel
from transformers.utils import import_utils

from tests.golden.removed_tasks import FOLDER as REMOVED_TASKS
from tests.sweeps import rare, sample
from tests.tiny import tiny_model
from tests.tiny_runs import damage_file
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import pretrained
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import (
    load_config,
    load_pretrained,
    load_seq2seq,
    load_tokenizer,
)
from vanilla_transformer.extensions.conversion import common
from vanilla_transformer.files.hashes import write_hashes
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

WEIGHTS = "model.safetensors"


def change_weights(folder, change):
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def set_values(name, **values):
    def change(folder):
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(content | values))

    return change


def fill(value):
    def change(weights):
        weights["model.encoder.layers.0.fc1.bias"].fill_(value)

    return of_weights(change)


def of_weights(change):
    return lambda folder: change_weights(folder, change)


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def remove_tensor(weights):
    del weights["model.decoder.layers.0.fc2.bias"]


def add_tensor(weights):
    weights["extra"] = torch.zeros(3)


def remove_layer(folder):
    tiny_model(decoder_layers=3).save_pretrained(folder)
    set_values("config.json", decoder_layers=2)(folder)


def remove_entry(name):
    def change(folder):
        path = folder / "tokenizer.json"
        content = json.loads(path.read_text())
        content.pop(name, None)
        path.write_text(json.dumps(content))

    return change


TOKENS = ["eos_token_id", "pad_token_id", "decoder_start_token_id"]
TOKENS += ["forced_bos_token_id", "forced_eos_token_id"]


OUTSIDE = "in the vocabulary of 300 entries, got "
# Settings of a search that no model has, and what they must be.
SETTINGS = [
    (name, value, OUTSIDE)
    for name in TOKENS
    for value in (10**9, -1, 300, 2.5)
    if (name, value) != ("pad_token_id", -1)  # about which the library warns, too
]
SETTINGS += [
    (name, value, OUTSIDE)
    for name in ("bad_words_ids", "force_words_ids")
    for value in ([[10**9]], [[-1]], [[300]])
]
SETTINGS += [
    (name, value, OUTSIDE)
    for name in ("suppress_tokens", "begin_suppress_tokens")
    for value in ([10**9], [-1], [5, 300])
]
SETTINGS += [("eos_token_id", [], OUTSIDE), ("eos_token_id", [2, 10**9], OUTSIDE)]
SETTINGS += [("num_beams", 400, "at most 100, got 400")]
# Settings that the library refuses, or cannot follow on this machine or with this model.
REFUSED_BY_THE_LIBRARY = {
    "guidance_scale": 2.0,
    "repetition_penalty": -1.0,
    "encoder_repetition_penalty": -3.0,
    "token_healing": True,
    "cache_implementation": "quantized",
    "sequence_bias": [[[10**9], 1.0]],
}
NUMBERS_OF_NO_MODEL = [
    ("config.json", "num_labels", 3 * 10**8),
    ("config.json", "encoder_layers", 10**6),
    ("config.json", "num_hidden_layers", 10**6),
    ("config.json", "max_position_embeddings", 10**9),
    ("config.json", "vocab_size", 10**4000),
    ("config.json", "attn_implementation", "evil/kernel"),
    ("config.json", "_attn_implementation", {"": "flash_attention_2"}),
    ("config.json", "quant_method", "mxfp4"),
    ("adapter_config.json", "r", 10**9),
    ("tokenizer_config.json", "extra_ids", 10**9),
]
SHARDS_ELSEWHERE = {
    "/etc/passwd": {"a": "/etc/passwd"},
    "../x": {"a": "../../x.safetensors", "b": "../../x.bin"},
    "a number": {"a": 1},
    "no shards": [],
}
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
WITHOUT_TOKENS = {"type": "TemplateProcessing", "special_tokens": {}}
UNKNOWN_TOKEN = [{"SpecialToken": {"id": "x", "type_id": 0}}]
PANIC = WITHOUT_TOKENS | {"single": UNKNOWN_TOKEN, "pair": UNKNOWN_TOKEN}
# Changes of a folder, and words of the error.
DAMAGE = {
    "a missing tensor": (
        of_weights(remove_tensor),
        "lack the tensor model.decoder.layers.0.fc2.bias",
    ),
    "no tensors": (of_weights(dict.clear), "lack 33 tensors, such as "),
    "a tensor that is not used": (
        of_weights(add_tensor),
        "does not use the tensor extra of its weights",
    ),
    "fewer layers than the weights": (
        remove_layer,
        "does not use 18 tensors, such as model.decoder.layers.2.encoder_attn.k_proj.weight",
    ),
    "infinity": (fill(float("inf")), "hold NaN or infinity"),
    "an empty generation config": (write(GENERATION_CONFIG, ""), "is invalid"),
    "a negative margin": (
        set_values(GENERATION_CONFIG, max_new_tokens_beyond_source=-1),
        "`max_new_tokens_beyond_source` must be an integer from 0 to 10,000, got -1",
    ),
    "early stopping": (set_values(GENERATION_CONFIG, early_stopping="sometimes"), "early_stopping"),
}
for name, value, expected in SETTINGS:
    damage = set_values(GENERATION_CONFIG, **{name: value})
    DAMAGE[f"{name} {value}"] = (damage, f" is invalid: `{name}` must be {expected}")
for name, value in REFUSED_BY_THE_LIBRARY.items():
    damage = set_values(GENERATION_CONFIG, **{name: value})
    DAMAGE[f"{name} {value} of a call"] = (damage, f"must accept `{name}` of the model, but: ")
for file, name, value in NUMBERS_OF_NO_MODEL:
    damage = set_values(file, **{name: value})
    DAMAGE[f"{name} in {file}"] = (damage, f"{file}, `{name}` must be ")
for file in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
    for shard, weights in SHARDS_ELSEWHERE.items():
        damage = set_values(file, metadata={}, weight_map=weights)
        reason = f"/{file} must name files of its folder that end in "
        DAMAGE[f"{file} that names {shard}"] = (damage, reason)
DAMAGED_TOKENIZERS = {
    "a tokenizer without tokens": remove_entry("added_tokens"),
    "a tokenizer with text for a length": set_values(TOKENIZER_CONFIG, model_max_length="x"),
    "a list as configuration of the tokenizer": write(TOKENIZER_CONFIG, "[]"),
    "a tokenizer with a list as model": set_values("tokenizer.json", model=[]),
}
DAMAGE |= {name: (damage, " is damaged: ") for name, damage in DAMAGED_TOKENIZERS.items()}
DAMAGE["a tokenizer whose library panics"] = (  # and writes about it to standard error by itself
    set_values("tokenizer.json", post_processor=PANIC),
    "damaged: its library failed: ",
)


@pytest.fixture
def of_transformers():
    """Return what the logger of transformers writes."""
    stream = io.StringIO()
    handler, logger = logging.StreamHandler(stream), logging.getLogger("transformers")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


RARE_DAMAGE = {"a missing tensor", "fewer layers than the weights"}
RARE_DAMAGE |= {"an empty generation config", "a negative margin"}
RARE_DAMAGE |= {"a tokenizer with text for a length", "a tokenizer with a list as model"}


@pytest.mark.parametrize("kind", sample(DAMAGE, *({*DAMAGE} - RARE_DAMAGE)))
def test_translate_refuses_a_damaged_model(kind, folder, capsys, of_transformers):
    damage, said = DAMAGE[kind]
    damage(folder)
    assert main(["translate", str(folder), "A man."]) == 2
    output = capsys.readouterr()
    assert not output.out, "random words must not be printed"
    lines = output.err.splitlines()
    (error,) = (line for line in lines if line and "it/s]" not in line)  # progress bars
    assert said in error and len(error) < 500
    assert not of_transformers.getvalue()


@pytest.mark.parametrize(
    "command",
    ["translate", rare("evaluate"), rare("convert"), "push-to-hub", "average-checkpoints"],
)
@pytest.mark.parametrize(
    "name", [WEIGHTS, rare("tokenizer.json"), rare("modeling_vanilla_transformer.py")]
)
def test_commands_refuse_a_flipped_bit(command, name, folder, tmp_path, capsys):
    write_hashes(folder)
    damage_file(folder / name, "a flipped bit")
    text = str(tmp_path / "text")
    (tmp_path / "text").write_text("A man.\n")
    words = {
        "translate": ["A man."],
        "evaluate": ["--source", text, "--target", text],
        "convert": [str(tmp_path / "out"), "--target_format", "marian"],
        "push-to-hub": ["user/name", "--dry_run"],
        "average-checkpoints": [str(folder), "--output_dir", str(tmp_path / "out")],
    }[command]
    assert main([command, str(folder), *words]) == 2
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line)
    assert f"In {folder}, {name} is damaged. Its `train` command makes it again; if" in error


def change_weight(value):
    def change(folder):
        fill(value)(folder)
        (folder / "sha256.json").unlink()

    return change


CHANGES = [
    set_values("generation_config.json", num_beams=2),
    set_values("generation_config.json", max_new_tokens_beyond_source=0),
    change_weight(0.5),
    change_weight(-float("inf")),  # bans a token
]


@pytest.mark.parametrize("change", CHANGES)
def test_load_seq2seq_accepts_a_run_that_a_user_has_changed(change, folder):
    write_hashes(folder)
    change(folder)
    config = load_seq2seq(folder, "translates").generation_config
    stored = json.loads((folder / "generation_config.json").read_text())
    for name in ("num_beams", "max_new_tokens_beyond_source"):
        assert getattr(config, name) == stored[name]


def test_convert_refuses_a_damaged_model(folder, tmp_path, capsys):
    DAMAGE["infinity"][0](folder)
    converted = tmp_path / "converted"
    command = ["convert", str(folder), str(converted), "--target_format", "marian"]
    assert main(command) == 2
    assert "hold NaN or infinity" in capsys.readouterr().err
    assert not converted.exists()


FILES = ["config.json", "tokenizer.json", "model.safetensors", "generation_config.json"]


@pytest.mark.parametrize("load", [load_config, load_tokenizer, load_pipeline])
@pytest.mark.parametrize("name", FILES)
def test_loaders_refuse_a_named_pipe(folder, name, load):
    """Reading it would wait for ever."""
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    message = rf"{name} must be a file or a folder, but it is a pipe or a device\."
    with pytest.raises(ValueError, match=message):
        load(folder)


def times_of_files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("load", [load_config, load_tokenizer, load_pipeline])
def test_loaders_change_no_file(folder, load):
    """A folder that came from others may have what looks like an interrupted output."""
    for parent in (folder, folder.parent):
        left = parent / f".{folder.name}.tmp-0123456789abcdef"
        (left / "whole").mkdir(parents=True)
        (left / "whole" / "generation_config.json").write_text("{}")
        os.utime(left, (0, 0))
    before = times_of_files(folder.parent)
    load(folder)
    assert times_of_files(folder.parent) == before


def test_load_config_names_an_interrupted_command(folder):
    """Weights move in last, so the folder has none while files move."""
    left = folder / f".{folder.name}.tmp-0123456789abcdef" / "whole"
    left.mkdir(parents=True)
    (folder / WEIGHTS).rename(left / WEIGHTS)
    with pytest.raises(FileNotFoundError, match="is not complete: .* Run that command again"):
        load_config(folder)


def test_load_pretrained_names_a_missing_folder():
    message = "There is no model folder a/b/c, and the Hub has no such names"
    with pytest.raises(FileNotFoundError, match=message):
        load_pretrained(AutoModelForSeq2SeqLM, "a/b/c")


NAMES = ("runs/demo", "runs/mine", "./model", "../model", "/no/such/model", "~/model")
COMMANDS = ("evaluate", "score", "compile", "convert", "explain")
CALLS = [("translate", name) for name in NAMES]
CALLS += [(command, NAMES[1]) for command in COMMANDS]


@pytest.mark.parametrize(("command", "name"), CALLS)
def test_no_local_folder_is_on_the_hub(command, name, tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise AssertionError("no request may reach the Hub")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained.AutoConfig, "from_pretrained", refuse)
    (tmp_path / "text").write_text("A man.\n")
    pairs = ["--source", "text", "--target", "text"]
    words = {"translate": ["A man."], "evaluate": pairs, "score": pairs}
    words["explain"] = ["A man.", "--output", "x.html"]
    words["convert"] = ["out", "--target_format", "marian"]
    assert main([command, name, *words.get(command, [])]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    maker = "vanilla-transformer train small"
    if name == "runs/demo":
        maker = "vanilla-transformer demo"
    assert f"There is no model folder {name}" in error and maker in error
    assert name in error.split(maker)[1]


def test_load_config_asks_the_hub_for_other_names(monkeypatch, tmp_path):
    asked = []

    def ask(name, **_):
        asked.append(name)

    monkeypatch.setattr(pretrained.AutoConfig, "from_pretrained", ask)
    reached = SimpleNamespace(head=lambda address, **_: None)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: reached)
    config = tmp_path / "config.json"
    config.write_text("{}")
    monkeypatch.setattr(pretrained, "cached_file", lambda name, file: str(config))
    for name in ("user/name", "Helsinki-NLP/opus-mt-en-de", "name"):
        pretrained.load_config(name)
    assert asked == ["user/name", "Helsinki-NLP/opus-mt-en-de", "name"]


def test_load_model_refuses_another_type(folder):
    model = common.load_model(VanillaTransformerForConditionalGeneration, folder)
    assert model.dtype == torch.float32
    message = "must be a model of type 'marian', got type 'vanilla_transformer'"
    with pytest.raises(ValueError, match=message):
        common.load_model(MarianMTModel, folder)
        common.load_model(MarianMTModel, folder)


THREADS = [(4, 2, None, 2), (1, 2, None, 1), (4, 2, "4", 4)]


@pytest.mark.parametrize(("threads", "cores", "variable", "used"), THREADS)
def test_loading_uses_threads_up_to_cores(monkeypatch, folder, threads, cores, variable, used):
    counts = [threads]
    monkeypatch.setattr(pretrained, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: counts[-1])
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    load_pretrained(AutoModelForSeq2SeqLM, folder)
    assert counts[-1] == used


@pytest.mark.parametrize("command", ["translate", "evaluate", "convert"])
def test_load_config_names_a_checkpoint(command, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for step in (9, 90):
        shutil.copytree(folder, f"runs/x/checkpoint-{step}")
    (tmp_path / "text").write_text("A man.\n")
    words = {"evaluate": ["--source", "text", "--target", "text"], "translate": ["A man."]}
    words["convert"] = ["out", "--target_format", "marian"]
    assert main([command, "runs/x", *words[command]]) == 2
    expected = "The run runs/x is not finished; its last checkpoint is runs/x/checkpoint-90,"
    assert capsys.readouterr().err == f"error: {expected} which is a usable model.\n"


def test_load_config_asks_an_unreachable_hub_once(tmp_path, monkeypatch, capsys):
    requests = []

    def refuse(address, **_):
        requests.append(address)
        raise HTTPError("Name or service not known")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=refuse))
    assert main(["translate", "models/en-de", "A dog."]) == 2
    error = capsys.readouterr().err
    assert len(requests) == 1 and error.count("\n") == 1
    assert "the Hub cannot be reached: Name or service not known. " in error
    assert "is in the repository, not in the wheel" in error


@pytest.mark.parametrize("load", [load_pipeline, load_tokenizer])
def test_loading_reads_a_cached_model(load, folder, tmp_path, monkeypatch, caplog):
    requests = []

    def refuse(address, **_):
        requests.append(address)
        raise HTTPError("Name or service not known")

    snapshot = tmp_path / "models--user--name" / "snapshots" / "1"
    shutil.copytree(folder, snapshot)
    (tmp_path / "models--user--name" / "refs").mkdir()
    (tmp_path / "models--user--name" / "refs" / "main").write_text("1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=refuse))
    load("user/name")
    assert "so its cache is read" in caplog.messages[0]


def test_load_tokenizer_names_packages_that_are_missing(monkeypatch):
    missing = (lambda: False, import_utils.PROTOBUF_IMPORT_ERROR)
    monkeypatch.setitem(import_utils.BACKENDS_MAPPING, "protobuf", missing)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    requirement = "must have the packages that read it, but one is missing or too old: .*"
    hint = r"Run `pip install --upgrade protobuf sentencepiece`\.$"
    with pytest.raises(OSError, match=f"The tokenizer of .*t5 {requirement} {hint}"):
        load_tokenizer(REMOVED_TASKS / "t5")
