"""Filters by the scores of two models: the kept pairs, the cache, and mistakes."""

import numpy as np
import pytest

from vanilla_transformer.data.cleaning_rules import ScoreRule
from vanilla_transformer.data.data_arguments import DataArguments, check_data_arguments, cleaning_rules
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.text.languages import Direction

MODELS = {"forward": "there", "backward": "back"}


@pytest.fixture
def load(tmp_path):
    """Return a function that loads two corpora, the first one with a score rule, and lists the calls of the scorer."""
    lines = ["one\teins", "two\tzwei", "two 2\tzwei 2", "three\tdrei", "four\tvier"]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    (tmp_path / "b.tsv").write_text("bad\tschlecht\n")
    calls = []

    def score(models, pairs, direction):
        calls.append((models, direction))
        return np.array([len(pair.source) / 10 for pair in pairs])

    def load_with(**rule):
        models = {} if "quality" in rule else MODELS
        entries = [{"file": str(tmp_path / "a.tsv"), "score": models | rule}, {"file": str(tmp_path / "b.tsv")}]
        data = DataArguments(corpora=entries, cache_dir=str(tmp_path / "cache"), source_language="en")
        return load_texts(data, score=score).training, calls

    return load_with


def test_drop_low_scores_keeps_a_minimum_and_other_corpora(load):
    texts, calls = load(min_score=0.4)
    assert texts.dataset["source"][:] == ["two 2", "three", "four", "bad"]
    assert texts.report.dropped == {"score": 2} and texts.report.examples["score"] == [
        ["one", "eins"],
        ["two", "zwei"],
    ]
    assert calls == [(("there", "back"), Direction("en", None))]
    counts = texts.report.histograms["source"]
    assert (sum(counts["kept"]), sum(counts["dropped"])) == (4, 2) and texts.report.kept == 4
    assert "2 dropped (33 %): with a low score by models" in str(texts.report)


def test_drop_low_scores_keeps_the_best_share_of_a_corpus(load):
    assert load(keep=0.4)[0].dataset["source"][:] == ["two 2", "three", "bad"]
    assert len(load(keep=1.0)[0].dataset) == 6


def test_drop_low_scores_scores_once_for_each_pair_of_models(load, tmp_path):
    keys = {load(min_score=0.4)[0].key, load(min_score=0.4)[0].key, load(min_score=0.5)[0].key}
    assert len(load(keep=0.5)[1]) == 1 and len(keys) == 2
    assert len(load(keep=0.5, forward="other")[1]) == 2


def test_drop_low_scores_identifies_a_model_by_its_content(load, tmp_path):
    (tmp_path / "model").mkdir()
    for number, content in enumerate((b"a", b"a", b"b"), start=1):
        (tmp_path / "model" / "model.safetensors").write_bytes(content)
        _, calls = load(keep=0.5, forward=str(tmp_path / "model"))
        assert len(calls) == (2 if number == 3 else 1)


def test_drop_low_scores_by_quality(load, tmp_path):
    model = tmp_path / "quality"
    (model / "checkpoints").mkdir(parents=True)
    for content in (b"a", b"a", b"b"):
        (model / "checkpoints" / "model.ckpt").write_bytes(content)
        texts, calls = load(keep=0.4, quality=str(model))
        assert texts.dataset["source"][:] == ["two 2", "three", "bad"]
    assert calls == [((str(model),), Direction("en", None))] * 2


def test_drop_low_scores_refuses_to_drop_everything(load, tmp_path):
    (tmp_path / "b.tsv").write_text("\n")
    with pytest.raises(ValueError, match="empty"):
        load(min_score=0.9)
    (tmp_path / "b.tsv").write_text("a\ta\n")
    data = DataArguments(corpora=[{"file": str(tmp_path / "b.tsv"), "score": MODELS | {"min_score": 0.9}}])
    with pytest.raises(ValueError, match="must leave some pairs .* got none"):
        load_texts(data, tmp_path / "cache", score=lambda *_: np.array([0.1]))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{forward: a}", "`backward` of `score` must name a model, got ''"),
        (MODELS, "`score` must have either `min_score` or `keep`"),
        ({"quality": "a"}, "`score` must have either `min_score` or `keep`"),
        ({"quality": 1, "keep": 0.5}, "`quality` of `score` must name a model, got 1"),
        (MODELS | {"quality": "a", "keep": 0.5}, "must have either `quality` or both `forward` and `backward`"),
        (MODELS | {"min_score": 0.1, "keep": 0.5}, "`score` must have either `min_score` or `keep`"),
        (MODELS | {"keep": 0}, r"`keep` of `score` must be a number in \(0, 1\], got 0"),
        (MODELS | {"min_score": "high"}, r"`min_score` of `score` must be a number in \(0, 1\], got 'high'"),
        (MODELS | {"kep": 1}, "There is no key of `score` 'kep'. Did you mean 'keep'"),
        ([1], r"`score` must be a mapping, such as .* got \[1\]"),
    ],
)
def test_check_data_arguments_refuses_a_wrong_score(section, message):
    with pytest.raises(ValueError, match=message):
        check_data_arguments(DataArguments(corpora=[{"file": "a.tsv"}], score=section))


def test_cleaning_rules_of_an_entry_take_the_score_of_the_recipe_away():
    data = DataArguments(corpora=[{"file": "a.tsv", "score": None}, {"file": "b.tsv"}], score=MODELS | {"keep": 0.5})
    assert [each.score for each in cleaning_rules(data)] == [None, ScoreRule("there", "back", keep=0.5)]
