"""The model of the repository, and the tool that writes it."""

import json
import re
import runpy

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.docs_pages import ROOT
from tests.tiny import tiny_model
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import NO_DIRECTION, find_direction

EN_DE = ROOT / "models/en-de"


def test_model_of_the_repository_is_small_and_as_its_card_says():
    files = {path.name: path for path in EN_DE.iterdir()}
    assert sum(path.stat().st_size for path in files.values()) <= 16_000_000
    card, row = files.pop("README.md").read_text(), r"^\| `([\w.]+)` \| `([0-9a-f]{64})` \|$"
    hashes = dict(re.findall(row, card, re.MULTILINE))
    assert hashes == {name: hash_file(path) for name, path in files.items()}


@pytest.mark.parametrize(
    ("source", "kept", "kind"),
    [
        ("{} said that yesterday.", "{name}", "names"),
        ("I learned a lot from {}.", "<name>", "names"),
        ("{} is here.", "`code`", "names"),
        ("Open {} now.", "https://www.example.org/a/b.html", "names"),
        ("I have {} books.", "%d", "numbers"),
    ],
)
def test_model_of_the_repository_translates_around_text_to_keep(source, kept, kind):
    """The sentence is the one of a word that the model copies."""
    translate = load_pipeline(str(EN_DE), compile=False)
    words = getattr(translate.probe_stand_ins(NO_DIRECTION), kind)
    kept_answer, plain = translate([source.format(kept), source.format(words[0])])
    assert kept_answer["translation_text"].count(kept) == 1
    expected = plain["translation_text"].replace(words[0], kept)
    assert kept_answer["translation_text"] == expected


def test_model_of_the_repository_names_its_languages():
    assert find_direction(AutoTokenizer.from_pretrained(EN_DE)) == ("en", "de")


def test_tool_writes_bfloat16_weights_that_load_as_float32(tmp_path, tiny_tokenizer):
    run = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "run")
    names = ["learning_curve.png", "corpus.json", "machine.json"]
    for name in [*names, "metrics.jsonl", "recipe.json"]:
        (run / name).write_text("{}")
    tool = runpy.run_path(str(ROOT / "tools/write_model.py"))
    tool["write_model"](run, tmp_path / "written")
    with safe_open(tmp_path / "written/model.safetensors", framework="pt") as stored:
        kinds = {stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "written")
    assert kinds == {"BF16"} and loaded.dtype == torch.float32
    assert "auto_map" not in json.loads((tmp_path / "written/config.json").read_text())
    for name, weight in tiny_model().state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.bfloat16().float()), name
