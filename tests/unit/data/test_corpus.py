"""Epochs of a mix: every pair as often as its corpus weighs, and the same pairs for each call."""

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.cleaning import CleaningReport
from vanilla_transformer.data.cleaning_rules import CleaningRules
from vanilla_transformer.data.corpus import (
    Overlap,
    TokenizedCorpus,
    count_overlap,
    drop_by_length,
    sample_epoch,
)
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import EncodedPairs, TokenTable

WEIGHTS = st.floats(0.01, 4.0)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.tuples(WEIGHTS, WEIGHTS, WEIGHTS),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_sample_epoch_respects_the_weights(corpora, weights, seed, epoch):
    corpora = np.array(corpora)
    rows = sample_epoch(corpora, weights, seed, epoch)
    times = np.bincount(rows, minlength=len(corpora))
    for corpus, weight in enumerate(weights):
        counts = times[corpora == corpus]
        assert np.all((counts >= int(weight)) & (counts <= int(np.ceil(weight))))
        assert abs(counts.sum() - weight * len(counts)) <= 0.5 + 1e-9
    assert np.array_equal(rows, sample_epoch(corpora, weights, seed, epoch))


def test_sample_epoch_depends_on_seed_and_epoch():
    corpora = np.zeros(100, dtype=int)
    epochs = set()
    for seed in range(3):
        epochs |= {tuple(sample_epoch(corpora, [0.5], seed, epoch)) for epoch in range(3)}
    assert len(epochs) == 9 and {len(epoch) for epoch in epochs} == {50}


@pytest.fixture
def texts():
    rows = {"source": ["a", "b b b", "c"], "target": ["A", "B", "C C"], "corpus": [0, 1, 1]}
    return datasets.Dataset.from_dict(rows)


@pytest.fixture
def pairs():
    rows = {"input_ids": [[1], [2, 2, 2], [3]], "labels": [[1], [2], [3, 3]]}
    return EncodedPairs(TokenTable(datasets.Dataset.from_dict(rows)))


def corpus(texts, pairs, weights):
    overlap = Overlap(pairs=2, sources=1, targets=0, both=0, examples=[["a", "x"]])
    report = CleaningReport(read=3)
    return TokenizedCorpus(texts, pairs, [weights], 0, report, {"validation": overlap})


def test_tokenized_corpus_with_weights_of_one_has_all_pairs(texts, pairs):
    mix = corpus(texts, pairs, [1, 1.0])
    assert mix.epoch(0) is mix.epoch(7) is pairs


def test_tokenized_corpus_weights_apply_to_kept_pairs(texts, pairs):
    mix = corpus(texts, pairs.select(np.array([1, 2])), [1, 2])
    assert mix.epoch(0).rows.tolist() == [1, 1, 2, 2]
    assert mix.max_source_length == 3
    assert mix.texts.select(mix.epoch(0).rows)["source"][:] == ["b b b", "b b b", "c", "c"]


def test_corpus_describes_cleaning_and_overlap(texts, pairs):
    mix = corpus(texts, pairs, [1, 1])
    assert str(mix).splitlines() == [
        "Training text: 3 of 3 pairs kept.",
        "Overlap with validation text: of 2 pairs the training text has 1 sources, 0 targets and "
        "0 whole pairs.",
        "    a | x",
    ]
    assert mix.to_dict()["cleaning"]["kept"] == 3
    assert mix.to_dict()["overlap"]["validation"]["sources"] == 1


@pytest.mark.parametrize(
    ("rules", "sources", "targets", "dropped"),
    [
        ([{"max_length": 4}], [5, 4, 3], [1, 4, 6], {"max_length": [0, 2]}),
        ([{"max_length_ratio": 3}], [6, 2, 7, 2], [2, 6, 2, 7], {"max_length_ratio": [2, 3]}),
        ([{}], [9], [1], {}),
        (
            [{"max_length": 5, "max_length_ratio": 2}, {}],
            [9, 9, 4, 9],
            [1, 9, 1, 1],
            {"max_length": [0, 1], "max_length_ratio": [2]},
        ),
    ],
    ids=["either side", "ratio of either side", "no rule", "first rule alone, by corpus"],
)
def test_drop_by_length_counts_a_pair_once(rules, sources, targets, dropped):
    size = len(sources)
    corpora = [0, 0, 0, len(rules) - 1]
    rows = {"source": list("abcd")[:size], "target": list("ABCD")[:size]}
    texts = datasets.Dataset.from_dict(rows | {"corpus": corpora[:size]})
    tokens = {"input_ids": [[1] * length for length in sources]}
    tokens["labels"] = [[1] * length for length in targets]
    pairs = EncodedPairs(TokenTable(datasets.Dataset.from_dict(tokens)))
    report = CleaningReport(read=size)
    kept = drop_by_length(pairs, texts, [CleaningRules(**values) for values in rules], report)
    assert {*kept.rows} == {*range(size)}.difference(*dropped.values())
    assert report.dropped.keys() == report.examples.keys() == dropped.keys()
    for name, rows in dropped.items():
        assert report.dropped[name] == len(rows)
        assert report.examples[name] == [[*texts[row].values()][:2] for row in rows]


def test_drop_by_length_refuses_to_drop_everything(texts, pairs):
    long, rules = pairs.select(np.array([1])), CleaningRules(max_length=2)
    report = CleaningReport(read=1)
    message = "must leave some pairs .* got none. 0 of 1 pairs kept.\n.*max_length"
    with pytest.raises(ValueError, match=message):
        drop_by_length(long, texts, [rules] * 2, report)


def test_count_overlap_counts_sources_targets_and_pairs():
    rows = {"source": ["a", "b", "z", "y", "a"], "target": ["A", "x", "Z", "C", "A"]}
    texts = [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("a", "C")]
    held_out = [SentencePair(*pair) for pair in texts]
    overlap = count_overlap(datasets.Dataset.from_dict(rows), held_out)
    assert (overlap.pairs, overlap.sources, overlap.targets, overlap.both) == (5, 3, 3, 1)
    assert overlap.examples == [["a", "A"], ["b", "B"], ["a", "C"]]
    shown = "of 5 pairs the training text has 3 sources, 3 targets and 1 whole pairs.\n    a | A"
    assert str(overlap).startswith(shown)
