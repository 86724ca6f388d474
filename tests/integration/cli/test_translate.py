"""`translate --json` prints one object per sentence, with scores and tokens."""

import json
import sys

import pytest

from tests.rounding import close_to
from tests.tiny import tiny_long_model
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

SENTENCES = ["A man is sleeping.", "", "Two dogs."]


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


def test_translate_json_has_sources_scores_and_tokens(folder, capsys, monkeypatch):
    assert main(["translate", folder, *SENTENCES, "--num_return_sequences", "2"]) == 0
    plain = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "stdin", iter(f"{sentence}\n" for sentence in SENTENCES))
    assert main(["translate", folder, "--json", "--num_return_sequences", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"] for row in rows] == SENTENCES
    translations = [translation for row in rows for translation in row["translations"]]
    assert [translation["text"] for translation in translations] == plain
    for translation in translations:
        assert [*translation] == ["text", "score", "log_probability", "warnings", "tokens"]
        total = sum(token["log_probability"] for token in translation["tokens"])
        assert translation["log_probability"] == close_to(total)


def test_translate_json_has_texts_and_a_warning_for_a_model_without_scores(tiny_tokenizer, tmp_path, capsys, caplog):
    folder = save_model_folder(tiny_long_model(layer_types="transfo_xl_attention"), tiny_tokenizer, tmp_path / "model")
    assert main(["translate", str(folder), "A man.", "--json"]) == 0
    (translation,) = json.loads(capsys.readouterr().out)["translations"]
    assert translation.keys() == {"text"}
    name = "VanillaTransformerLongForConditionalGeneration"
    assert f"{name} has no scores, tokens or warnings, so the objects have texts only." in caplog.messages


@pytest.mark.parametrize("flags", [("--json",), ("--n_best", "2")])
def test_translate_returns_scores_of_blank_text_alone(folder, capsys, flags):
    assert main(["translate", folder, " ", "--num_beams", "2", *flags]) == 0
    assert capsys.readouterr().out.count("0.0") == 2
