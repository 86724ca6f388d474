"""The command that cleans the training text of a recipe."""

import json

import pytest

from tests.comet_files import UNIFIED, write_comet
from vanilla_transformer.cli import main
from vanilla_transformer.data.cleaning import LENGTH_EDGES
from vanilla_transformer.decoding.comet import Comet


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a recipe of two corpora, one for each of two target languages, into a working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("The house is old.\tDas Haus ist alt.\nIt has 25.\tEs hat 26.\nBerlin\tBerlin\n")
    (tmp_path / "b.tsv").write_text("The house is old.\tLa maison est vieille.\nIt has 25.\tElle en a 26.\n")
    recipe = [
        "corpora:",
        "  - {file: a.tsv, target_language: de, drop_other_numbers: true}",
        "  - {file: b.tsv, target_language: fr}",
        "source_language: en",
        "drop_identical: true",
        "output_dir: out",
        "cache_dir: cache",
    ]
    (tmp_path / "recipe.yaml").write_text("\n".join(recipe))
    return tmp_path


def test_clean_corpus_writes_text_report_and_picture(folder, capsys):
    assert main(["clean-corpus", "recipe.yaml"]) == 0
    assert (folder / "out/train.en-de.en").read_text() == "The house is old.\n"
    assert (folder / "out/train.en-de.de").read_text() == "Das Haus ist alt.\n"
    assert (folder / "out/train.en-fr.fr").read_text() == "La maison est vieille.\nElle en a 26.\n"
    report = json.loads((folder / "out/corpus.json").read_text())["cleaning"]
    assert report["dropped"] == {"identical": 1, "other_numbers": 1}
    assert report["examples"]["other_numbers"] == [["It has 25.", "Es hat 26."]]
    assert sum(report["histograms"]["source"]["kept"]) == 3 and report["kept"] == 3
    assert len(report["histograms"]["target"]["dropped"]) == len(LENGTH_EDGES) - 1
    assert (folder / "out/lengths.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "3 of 5 pairs kept." in printed and "It has 25. | Es hat 26." in printed and "out/lengths.png" in printed


def test_clean_corpus_keeps_the_pairs_of_the_best_quality(folder):
    pairs = [line.split("\t") for line in (folder / "a.tsv").read_text().splitlines()]
    scores = Comet.load(write_comet(folder / "quality", UNIFIED)).score(*zip(*pairs, strict=True))
    text = (
        "corpora: [{file: a.tsv}]\nscore: {quality: quality, keep: 0.34}\nsource_language: en\ntarget_language: de\n"
    )
    (folder / "quality.yaml").write_text(f"{text}output_dir: out\ncache_dir: cache\n")
    assert main(["clean-corpus", "quality.yaml"]) == 0
    assert (folder / "out/train.en-de.en").read_text() == pairs[scores.argmax()][0] + "\n"


def test_clean_corpus_keeps_the_sides_of_one_language_apart(folder):
    words = ["--train_source", "bad.en", "--train_target", "good.en", "--source_language", "en"]
    (folder / "bad.en").write_text("He go.\n")
    (folder / "good.en").write_text("He goes.\n")
    assert main(["clean-corpus", *words, "--target_language", "en", "--output_dir", "o", "--cache_dir", "c"]) == 0
    assert (folder / "o/train.en-en.source").read_text() == "He go.\n"
    assert (folder / "o/train.en-en.target").read_text() == "He goes.\n"


def test_clean_corpus_writes_nothing_after_a_mistake(folder, capsys):
    (folder / "b.tsv").write_text("no tab\n")
    assert main(["clean-corpus", "recipe.yaml"]) == 2
    assert "Line 1 of b.tsv must have two columns" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize("words", [["--max-length", "9"], ["--max_length_ratio=2"]])
def test_clean_corpus_leaves_rules_on_tokens_to_train(folder, capsys, words):
    assert main(["clean-corpus", "recipe.yaml", *words]) == 2
    assert "must be given to `train`, which counts tokens, got it in clean-corpus" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_clean_corpus_writes_each_text_on_one_line(folder):
    row = {"source": "One\nhouse.", "target": "Ein\x0bHaus."}
    (folder / "c.jsonl").write_text(json.dumps(row))
    corpora = json.dumps([{"file": "c.jsonl"}])
    assert main(["clean-corpus", "--corpora", corpora, "--output_dir", "plain", "--cache_dir", "cache"]) == 0
    assert (folder / "plain/train.source").read_text() == "One house.\n"
    assert (folder / "plain/train.target").read_text() == "Ein Haus.\n"
