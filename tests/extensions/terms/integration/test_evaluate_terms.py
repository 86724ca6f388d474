"""`evaluate --glossary` tells how many terms are used as asked, and what the glossary changes."""

import json
from contextlib import nullcontext

import pytest

from tests.tiny import TINY_SENTENCES, tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.evaluation import test_sets
from vanilla_transformer.loading.model_folders import save_model_folder

SOURCE, TARGET = TINY_SENTENCES[:2], TINY_SENTENCES[2:]


@pytest.fixture
def texts(tmp_path):
    files = {"a.en": SOURCE, "a.de": TARGET, "terms.tsv": ["man\tMann", "dogs\tHunde"]}
    files |= {"ours.de": ["Ein Mann.", "Zwei Hunden."], "theirs.de": ["Er.", "Zwei."]}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return tmp_path


def run(texts, *words, **options):
    defaults = {"target": texts / "a.de", "glossary": texts / "terms.tsv"}
    defaults["bootstrap_samples"] = 20
    for name, value in (defaults | options).items():
        words = [*words, f"--{name}", str(value)]
    return main(["evaluate", *words])


def test_evaluate_counts_terms_in_a_file_of_translations(texts, capsys):
    files = {"hypotheses": texts / "ours.de", "compare_with": texts / "theirs.de"}
    files |= {"source": texts / "a.en", "json": texts / "scores.json"}
    assert run(texts, **files) == 0
    shown = capsys.readouterr().out
    assert "Terms: 50.0% as given, 100.0% with any ending (2 in 2 sentences)\n" in shown
    baseline = "0.0% as given, 0.0% with any ending (2 in 2 sentences)"
    assert f"Terms, baseline: {baseline}\n" in shown
    ours, theirs = json.loads((texts / "scores.json").read_text())["terms"]
    assert ours == {"sentences": 2, "terms": 2, "exact": 1, "inflected": 2}
    assert theirs["inflected"] == 0


def test_evaluate_compares_a_model_with_and_without_terms(texts, capsys):
    folder = str(save_model_folder(tiny_model(), tiny_tokenizer(), texts / "model"))
    files = {"source": texts / "a.en", "output_file": texts / "out.de"}
    files["json"] = texts / "scores.json"
    assert run(texts, folder, term_mode="hard", num_beams=2, **files) == 0
    shown = capsys.readouterr().out
    first, second = (texts / "out.de").read_text().splitlines()
    assert "Terms, baseline: 0.0%" in shown
    assert "BLEU" in shown
    assert "p =" in shown
    assert "Mann" in first
    assert "Hunde" in second
    ours, theirs = json.loads((texts / "scores.json").read_text())["terms"]
    assert ours["terms"] == theirs["terms"] == 2
    assert theirs["inflected"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"hypotheses": "{texts}/ours.de"},
            "Give the source text by --source FILE, which --glossary",
        ),
        (
            {"source": "{texts}/a.en", "glossary": "{texts}/a.en"},
            "must have a term, a tab and its translation",
        ),
        (
            {"source": "{texts}/a.en", "term_mode": "soft"},
            "`term_mode` 'soft' is for models trained with",
        ),
    ],
)
def test_evaluate_names_mistakes_about_terms(texts, capsys, options, message):
    folder = str(save_model_folder(tiny_model(), tiny_tokenizer(), texts / "model"))
    words = [] if "hypotheses" in options else [folder]
    flags = {name: value.format(texts=texts) for name, value in options.items()}
    capsys.readouterr()
    assert run(texts, *words, **flags) == 2
    errors = capsys.readouterr().err.splitlines()
    assert message in errors[-1]
    assert [line.startswith("error: ") for line in errors].count(True) == 1


def test_evaluation_leaves_the_pipeline_its_glossary():
    options = {"glossary": [("man", "Mann")], "term_mode": "hard", "device": "cpu"}
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer(), **options)
    expected = translate(SOURCE)
    texts = test_sets.TestSet(SOURCE, TARGET)
    report = test_sets.evaluate_test_set(texts, nullcontext(translate))
    assert [use.terms for use in report.report.term_uses] == [1, 1]
    plain = translate.with_options(glossary=None, term_mode=None)
    assert translate(SOURCE) == expected != plain(SOURCE)


def test_with_options_refuses_what_calls_refuse():
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")
    with pytest.raises(OptionError, match="num_beams"):
        translate.with_options(num_beams=0)
