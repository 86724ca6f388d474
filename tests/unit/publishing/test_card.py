"""The model card shows recorded values and "unknown" for all others."""

import hashlib
import json
from pathlib import Path

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.file_utils import save_model_folder
from vanilla_transformer.publishing.card import hashes_in_card, read_facts, render_card
from vanilla_transformer.publishing.staging import publishable_files

CARDS = Path(__file__).parents[3] / "model_card"
FACTS = sorted(CARDS.glob("*.yaml"))


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


def render(folder):
    return render_card(folder, read_facts(CARDS / "multi30k_en_de.yaml"), CARDS / "template.md", version="1.2.3")


def test_render_card_shows_the_records_of_training(folder, tiny_model):
    entry = {"step": 1234, "minutes": 5.4, "validation_loss": 1.0, "bleu": 36.789, "bleu_signature": "nrefs:1|x"}
    (folder / "metrics.jsonl").write_text(json.dumps(entry) + "\n")
    (folder / "recipe.json").write_text(json.dumps({"dropout": 0.3}))
    (folder / "machine.json").write_text(json.dumps({"hardware": "2 CPU cores", "versions": {"torch": "2.13.0"}}))
    corpus = {"cleaning": {"read": 1200, "dropped": {"duplicates": 100}, "kept": 1100}}
    corpus["overlap"] = {"test": {"pairs": 50, "sources": 3, "targets": 2, "both": 1}}
    (folder / "corpus.json").write_text(json.dumps(corpus))
    card = render(folder)
    for shown in (
        "| training steps, minutes | 1,234, 5 |",
        "| hardware | 2 CPU cores |",
        "| software | torch 2.13.0 |",
        "1,100 of 1,200 pairs (dropped: 100 duplicates).",
        "Of the 50 test pairs, 1 are in the training text; so are 3 source and 2 target sentences.",
        r"| BLEU | 36.79 | unknown | `nrefs:1\|x` |",
        '"dropout": 0.3',
        "beam 4, α = 0.6",
    ):
        assert shown in card.text
    assert f"| parameters | {sum(p.numel() for p in tiny_model.parameters()):,} |" in card.text
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("bleu", 36.79)
    assert result.metric_args == {"signature": "nrefs:1|x"}


def test_render_card_shows_the_records_of_evaluate(folder, tmp_path, capsys):
    """`evaluate --name` records scores with intervals and the worst translations."""
    texts = {"source": "A man is sleeping.\nTwo dogs | run.\n", "target": "Ein Mann schläft.\nZwei Hunde laufen.\n"}
    files = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        files += [f"--{name}", str(tmp_path / name)]
    command = ["evaluate", str(folder), *files, "--name", "two sentences", "--bootstrap_samples", "10"]
    assert main(command) == 0
    recorded = json.loads((folder / "evaluations" / "two_sentences.json").read_text())
    card = render(folder)
    assert {result.metric_type for result in card.data.eval_results} == {"bleu", "chrf"}
    chrf = recorded["scores"]["chrf"]
    assert f"| two sentences | chrF | {round(chrf['score'], 2)} | {round(chrf['margin'], 2)} |" in card.text
    assert r"| Two dogs \| run. |" in card.text, "a bar must not end the cell"


def test_render_card_has_one_dataset_entry_for_each_text(folder):
    entry = {"validation_loss": 1.0, "step": 1, "minutes": 1.0, "bleu": 36.0, "bleu_signature": "x"}
    (folder / "metrics.jsonl").write_text(json.dumps(entry) + "\n")
    (folder / "evaluations").mkdir()
    for name in ("flickr 2016", "flickr 2017"):
        scores = {metric: {"score": 37.0, "margin": 1.5, "signature": "y"} for metric in ("bleu", "chrf")}
        (folder / "evaluations" / name).with_suffix(".json").write_text(json.dumps({"name": name, "scores": scores}))
    card = render(folder)
    (entry,) = card.data.to_dict()["model-index"]
    datasets = [result["dataset"] for result in entry["results"]]
    assert datasets == [
        {
            "name": "Multi30k validation set",
            "type": "multi30k-validation-set",
            "config": "en-de",
            "split": "validation",
        },
        {"name": "flickr 2016", "type": "flickr-2016", "config": "en-de", "split": "test"},
        {"name": "flickr 2017", "type": "flickr-2017", "config": "en-de", "split": "test"},
    ]
    assert [len(result["metrics"]) for result in entry["results"]] == [1, 2, 2]
    assert "interval_95: unknown" not in card.content and card.content.count("interval_95: 1.5") == 4


def test_render_card_names_datasets_and_base_model(folder, tmp_path):
    facts = (CARDS / "demo.yaml").read_text()
    path = tmp_path / "facts.yaml"
    path.write_text(f"{facts}datasets: [user/data]\nbase_model: user/model\n")
    data = render_card(folder, read_facts(path), CARDS / "template.md", version="1").data.to_dict()
    assert (data["datasets"], data["base_model"]) == (["user/data"], "user/model")
    path.write_text(f"{facts}datasets: [three/part/name]\n")
    with pytest.raises(ValueError, match="`datasets` in .* must be names on the Hub, .* got 'three/part/name'"):
        read_facts(path)
    assert not {"datasets", "base_model"} & render(folder).data.to_dict().keys()


def test_render_card_lists_each_file_with_its_hash(folder):
    listed = hashes_in_card(render(folder).content)
    assert listed.keys() == {path.name for path in publishable_files(folder)}
    assert listed["config.json"] == hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()


def test_render_card_shows_missing_records_as_unknown(folder):
    card = render(folder)
    for name in ("training steps, minutes | unknown, unknown", "hardware | unknown", "software | unknown"):
        assert f"| {name} |" in card.text
    assert "Kept for training: unknown." in card.text and "training text is unknown" in card.text
    assert card.data.eval_results is None


def test_render_card_writes_the_metadata_of_the_hub(folder):
    data = render(folder).data.to_dict()
    assert data["pipeline_tag"] == "translation" and data["library_name"] == "transformers"
    assert data["language"] == ["en", "de"] and data["license"] == "other"


@pytest.mark.parametrize("path", FACTS, ids=lambda path: path.name)
def test_read_facts_accepts_every_shipped_file(path):
    assert all(read_facts(path).values())


def test_read_facts_names_a_missing_or_unknown_fact(tmp_path):
    text = (CARDS / "demo.yaml").read_text()
    (tmp_path / "facts.yaml").write_text(text.replace("example:", "exmaple:"))
    with pytest.raises(ValueError, match="lacks 'example'"):
        read_facts(tmp_path / "facts.yaml")
    (tmp_path / "facts.yaml").write_text(text + "color: red\n")
    with pytest.raises(ValueError, match="unknown fact 'color'"):
        read_facts(tmp_path / "facts.yaml")


def test_read_facts_refuses_other_structures(tmp_path):
    (tmp_path / "facts.yaml").write_text("- a list")
    with pytest.raises(ValueError, match="must hold a mapping .* got list"):
        read_facts(tmp_path / "facts.yaml")
    text, old_name = (CARDS / "demo.yaml").read_text(), "licence"
    (tmp_path / "facts.yaml").write_text(text.replace("    license:", f"    {old_name}:"))
    with pytest.raises(ValueError, match="'licence' in .* is called 'license' now"):
        read_facts(tmp_path / "facts.yaml")


def test_render_card_refuses_a_folder_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="must have a config.json"):
        render(tmp_path)
