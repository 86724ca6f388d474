"""A new model is compared with an old one, and worse ones are named."""

import re

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation import model_comparison, test_sets
from vanilla_transformer.evaluation.model_comparison import (
    ModelOutput,
    WorstLosses,
    compare_outputs,
    count_lost_texts,
)
from vanilla_transformer.text.glossary import Glossary

COUNT = 40
SOURCES = [f"See https://a.example/{number} for {number + 20} dogs." for number in range(COUNT)]
GOOD = [f"Siehe https://a.example/{number} für {number + 20} Hunde." for number in range(COUNT)]
BAD = ["Der Berg ist blau."] * COUNT
TEXTS = test_sets.TestSet(SOURCES, GOOD)


def compare(old, new, old_seconds=1.0, new_seconds=1.0, **options):
    outputs = ModelOutput(old, old_seconds, 100), ModelOutput(new, new_seconds, 200)
    return compare_outputs(TEXTS, *outputs, samples=50, **options)


def test_a_model_that_is_as_good_has_no_losses():
    comparison = compare(GOOD, GOOD)
    assert comparison.find_losses(WorstLosses()) == []
    assert comparison.changes == []
    assert "0 of 40 translations changed." in comparison.markdown([], 10)


def test_a_worse_model_is_named_with_each_loss():
    comparison = compare(GOOD, BAD, glossary=Glossary([("dogs", "Hunde")]))
    losses = comparison.find_losses(WorstLosses())
    names = ["BLEU is", "chrF is", "sentences with lost numbers: 40", "lost texts to keep: 40"]
    names.append("lost terms: 40 instead of 0")
    assert len(losses) == len(names)
    for loss, name in zip(losses, names, strict=True):
        assert loss.startswith(name)
    assert "(p = 0.0" in losses[0]
    permitted = WorstLosses(score=100.0, lost=40)
    assert comparison.find_losses(permitted) == []
    page = comparison.markdown(losses, 1)
    assert page.startswith("The new model is worse:\n\n- BLEU is")
    assert page.count("- new: Der Berg ist blau.") == 1
    table = " ".join(page.replace("|", " ").split())
    assert "lost terms 0 40" in table and "parameters 100 200" in table
    assert re.search(r"BLEU 100\.00 \d\.\d\d 0\.\d{4} ", table)
    values = comparison.as_dict(losses, 3)
    assert values["is_worse_by"] == losses
    assert values["lost"]["lost texts to keep"] == {"old": 0, "new": 40}
    assert (values["changed_sentences"], len(values["changes"])) == (40, 3)


def test_a_better_model_has_no_losses():
    assert compare(BAD, GOOD).find_losses(WorstLosses()) == []


def test_a_slower_or_larger_model_is_worse_where_a_ratio_is_given():
    comparison = compare(GOOD, GOOD, new_seconds=3.0)
    worst = WorstLosses(time=2.5, size=1.9)
    slower, larger = comparison.find_losses(worst)
    assert slower == "seconds: 3.00 times as much, above 2.5"
    assert larger == "parameters: 2.00 times as much, above 1.9"
    assert comparison.find_losses(WorstLosses(time=3.0, size=2.0)) == []


def test_a_difference_by_chance_is_no_loss():
    other = [*GOOD[:-1], GOOD[-1].replace("Hunde", "Katzen")]
    assert compare(GOOD, other).find_losses(WorstLosses()) == []


def test_changes_are_sorted_by_how_much_they_change():
    other = [GOOD[0].replace("Hunde", "Hunden"), BAD[1], *GOOD[2:]]
    first, second = compare(GOOD, other).changes
    assert (first.new, second.new) == (BAD[1], other[0])
    assert first.chrf < second.chrf < 0


def test_count_lost_texts_counts_texts_to_keep():
    source = "Open {name} at https://a.example."
    assert count_lost_texts(source, "Öffne {name} bei https://a.example.") == 0
    assert count_lost_texts(source, "Öffne Name.") == 2
    assert count_lost_texts("It has 12,345.60 rows.", "Es hat 12.345,60 Zeilen.") == 0


def test_compare_outputs_needs_a_source():
    output = ModelOutput(GOOD, 1.0, 1)
    with pytest.raises(UserError, match="on a source text"):
        compare_outputs(test_sets.TestSet([], GOOD), output, output)


def test_a_missing_new_model_is_named_before_the_old_one_translates(tmp_path, monkeypatch, capsys):
    translated = []
    monkeypatch.setattr(model_comparison, "translate_test_set", lambda *_: translated.append(1))
    text = tmp_path / "text"
    text.write_text("A dog.\n")
    words = ["./old", str(tmp_path), "--source", str(text), "--target", str(text)]
    assert main(["compare-models", *words]) == 2
    assert f"{tmp_path} must have a config.json" in capsys.readouterr().err
    assert not translated
