"""Filters by the scores of two models: the formula over their losses, the kept pairs, the cache,
and mistakes.
"""

import numpy as np
import pytest
import torch

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.extensions.cleaning import low_scores
from vanilla_transformer.extensions.cleaning.low_scores import dual_scores
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

PAIRS = [("a b c", "A B"), ("two dogs run", "zwei"), ("x", "a much longer translation")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    folders = []
    for seed in (1, 2):
        path = folder / str(seed)
        folders.append(str(save_model_folder(tiny_model(seed), tiny_tokenizer(), path)))
    return folders


def loss(seed, source, target):
    ids = torch.tensor(encode_sentences(tiny_tokenizer(), [source]))
    labels = torch.tensor(encode_sentences(tiny_tokenizer(), [target], as_target=True))
    logits = tiny_model(seed).eval()(input_ids=ids, labels=labels).logits
    return torch.nn.functional.cross_entropy(logits[0], labels[0]).item()


@pytest.mark.parametrize("direction", [NO_DIRECTION, Direction("en", "de")])
def test_dual_scores_follow_the_formula(models, direction):
    forth = np.array([loss(1, source, target) for source, target in PAIRS])
    back = np.array([loss(2, target, source) for source, target in PAIRS])
    expected = np.exp(-(np.abs(forth - back) + (forth + back) / 2))
    assert dual_scores(*models, PAIRS, direction) == pytest.approx(expected, rel=1e-4)


def test_dual_scores_name_a_missing_model(models):
    with pytest.raises(OSError, match="no model folder none"):
        dual_scores("none", models[1], PAIRS, NO_DIRECTION)


NAMES = {"forward": "there", "backward": "back"}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that loads two corpora, the first one with a score rule, and lists the
    calls of the scorer.
    """
    lines = ["one\teins", "two\tzwei", "two 2\tzwei 2", "three\tdrei", "four\tvier"]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    (tmp_path / "b.tsv").write_text("bad\tschlecht\n")
    calls = []

    def score(models, pairs, direction):
        calls.append((models, direction))
        return np.array([len(pair.source) / 10 for pair in pairs])

    monkeypatch.setattr(low_scores, "corpus_scores", score)

    def load_with(**options):
        models = {} if "quality" in options else NAMES
        scored = {"file": str(tmp_path / "a.tsv"), "score": models | options}
        corpora = [scored, {"file": str(tmp_path / "b.tsv")}]
        cache = str(tmp_path / "cache")
        data = DataArguments(corpora=corpora, cache_dir=cache, source_language="en")
        return load_texts(data).training, calls

    return load_with


def test_drop_low_scores_keeps_a_minimum_and_other_corpora(load):
    texts, calls = load(min_score=0.4)
    assert texts.dataset["source"][:] == ["two 2", "three", "four", "bad"]
    report = texts.report
    assert report.dropped == {"score": 2}
    assert report.examples["score"] == [["one", "eins"], ["two", "zwei"]]
    assert calls == [(("there", "back"), Direction("en", None))]
    counts = report.histograms["source"]
    assert sum(counts["kept"]) == report.kept == 4
    assert sum(counts["dropped"]) == 2
    assert "2 dropped (33 %): with a low score by models" in str(texts.report)


def test_drop_low_scores_keeps_the_best_share_of_a_corpus(load):
    assert load(keep=0.4)[0].dataset["source"][:] == ["two 2", "three", "bad"]
    assert len(load(keep=1.0)[0].dataset) == 6


def test_drop_low_scores_scores_once_for_each_pair_of_models(load, tmp_path):
    keys = {load(min_score=least)[0].key for least in (0.4, 0.4, 0.5)}
    assert len(keys) == 2
    assert len(load(keep=0.5)[1]) == 1
    assert len(load(keep=0.5, forward="other")[1]) == 2


@pytest.mark.parametrize(
    ("key", "file"),
    [("forward", "model.safetensors"), ("quality", "checkpoints/model.ckpt")],
    ids=["forward", "COMET"],
)
def test_drop_low_scores_identifies_a_model_by_its_content(load, tmp_path, key, file):
    path = tmp_path / "model" / file
    path.parent.mkdir(parents=True)
    for content, times in ((b"a", 1), (b"a", 1), (b"b", 2)):
        path.write_bytes(content)
        texts, calls = load(keep=0.4, **{key: str(tmp_path / "model")})
        assert texts.dataset["source"][:] == ["two 2", "three", "bad"]
        assert len(calls) == times
        assert str(tmp_path / "model") in calls[-1][0]


def test_drop_low_scores_refuses_to_drop_everything(load, tmp_path, monkeypatch):
    (tmp_path / "b.tsv").write_text("\n")
    with pytest.raises(ValueError, match="empty"):
        load(min_score=0.9)
    (tmp_path / "b.tsv").write_text("a\ta\n")
    score = NAMES | {"min_score": 0.9}
    corpus = {"file": str(tmp_path / "b.tsv"), "score": score}
    data = DataArguments(corpora=[corpus])
    monkeypatch.setattr(low_scores, "corpus_scores", lambda *_: np.array([0.1]))
    with pytest.raises(ValueError, match="must leave some pairs .* got none"):
        load_texts(data, tmp_path / "cache")


def test_dual_scores_swap_sides_and_languages_for_the_backward_model(monkeypatch):
    calls = []

    def record(name, pairs, direction):
        calls.append((name, [*pairs], direction))
        return np.ones(len(pairs))

    monkeypatch.setattr(low_scores, "cross_entropies", record)
    dual_scores("there", "back", [("a", "b")], Direction("en", "de"))
    forth = ("there", [("a", "b")], Direction("en", "de"))
    assert calls == [forth, ("back", [("b", "a")], Direction("de", "en"))]
