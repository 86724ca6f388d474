"""The card says what was recorded, and that the rest is unknown."""

import json
from pathlib import Path

import pytest

from vanilla_transformer.publishing.card import read_facts, render_card
from vanilla_transformer.training.checkpoint import save_model_folder

CARDS = Path(__file__).parents[2] / "model_card"
FACTS = sorted(CARDS.glob("*.yaml"))


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


def render(folder):
    return render_card(folder, read_facts(CARDS / "multi30k_en_de.yaml"), CARDS / "template.md", version="1.2.3")


def test_the_card_shows_what_training_recorded(folder, tiny_model):
    entry = {"step": 1234, "minutes": 5.4, "validation_loss": 1.0, "bleu": 36.789, "bleu_signature": "nrefs:1|x"}
    (folder / "metrics.jsonl").write_text(json.dumps(entry) + "\n")
    (folder / "recipe.json").write_text(json.dumps({"dropout": 0.3}))
    card = render(folder)
    for shown in ("| 1,234, 5, ", r"| BLEU | 36.79 | `nrefs:1\|x` |", '"dropout": 0.3', "beam 4, α = 0.6"):
        assert shown in card.text
    assert f"| parameters | {sum(p.numel() for p in tiny_model.parameters()):,} |" in card.text
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.metric_args) == ("bleu", 36.79, "nrefs:1|x")


def test_what_was_not_recorded_is_unknown(folder):
    card = render(folder)
    assert "| updates, minutes, hardware | unknown, unknown," in card.text
    assert card.data.eval_results is None


def test_the_metadata_is_what_the_hub_reads(folder):
    data = render(folder).data.to_dict()
    assert data["pipeline_tag"] == "translation" and data["library_name"] == "transformers"
    assert data["language"] == ["en", "de"] and data["license"] == "other"


@pytest.mark.parametrize("path", FACTS, ids=lambda path: path.name)
def test_every_shipped_file_of_facts_is_complete(path):
    assert all(read_facts(path).values())


def test_a_missing_and_an_unknown_fact_are_named(tmp_path):
    text = (CARDS / "demo.yaml").read_text()
    (tmp_path / "facts.yaml").write_text(text.replace("hardware:", "hardwear:"))
    with pytest.raises(ValueError, match="lacks 'hardware'"):
        read_facts(tmp_path / "facts.yaml")
    (tmp_path / "facts.yaml").write_text(text + "colour: red\n")
    with pytest.raises(ValueError, match="unknown fact 'colour'"):
        read_facts(tmp_path / "facts.yaml")


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Unrecognized model in"):
        render(tmp_path)
