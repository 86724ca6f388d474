"""Pairs whose sides are not translations of each other are found, and few others."""

import datasets
import numpy as np
import pytest

from vanilla_transformer.data.cleaning import CleaningReport, find_broken
from vanilla_transformer.data.cleaning_rules import CleaningRules, PairRules
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.cleaning.misalignment import find_misaligned, find_threshold


def to_dataset(pairs, **columns):
    sources, targets = zip(*pairs, strict=True)
    return datasets.Dataset.from_dict({"source": sources, "target": targets} | columns)


@pytest.fixture(scope="module")
def shifted():
    """Return 14,000 pairs, of which twice 140 in a row have the target of the pair before."""
    pairs = read_demo_corpus("train", 14_000)
    wrong = np.zeros(len(pairs), bool)
    wrong[2_100:2_240] = wrong[6_300:6_440] = True
    moved = []
    for row, pair in enumerate(pairs):
        moved.append((pair.source, pairs[row - wrong[row]].target))
    return to_dataset(moved), wrong


def test_find_misaligned_finds_shifted_pairs(shifted):
    texts, wrong = shifted
    misaligned = find_misaligned(texts)
    assert misaligned[wrong].mean() > 0.6
    assert misaligned[~wrong].mean() < 0.01


def test_find_misaligned_keeps_pairs_without_known_words():
    pairs = [(f"a{number}", f"b{number}") for number in range(50)]
    assert not find_misaligned(to_dataset(pairs)).any()


def test_find_threshold_drops_what_scores_as_shuffled_pairs_do():
    random = np.random.default_rng(0)
    good, shuffled = random.normal(3, 1, 95_000), random.normal(-3, 1, 20_000)
    bad = random.normal(-3, 1, 5_000)
    threshold = find_threshold(np.concatenate([good, bad]), shuffled)
    assert (bad < threshold).mean() > 0.95
    assert (good < threshold).mean() < 0.005
    assert (good < find_threshold(good, shuffled)).mean() < 0.005
    assert find_threshold(np.abs(good), shuffled) <= np.abs(good).min()


def test_find_broken_looks_for_misaligned_pairs_of_each_direction(shifted):
    texts, wrong = shifted
    # The second corpus has no such rule.
    corpora = np.arange(len(texts)) // (len(texts) // 2)
    texts = texts.add_column("corpus", corpora)
    rules = [CleaningRules(drop=["misaligned"]), CleaningRules()]
    rules = [PairRules(of_corpus, "en-de") for of_corpus in rules]
    report = CleaningReport(read=len(texts))
    broken = find_broken(texts, rules, report, 1)
    assert report.dropped == {"misaligned": broken.sum()}
    assert not broken[corpora == 1].any()
    assert broken[wrong].mean() > 0.5
    assert not report.warnings


def test_find_broken_says_that_a_corpus_is_too_small_for_misaligned_pairs():
    report = CleaningReport(read=2)
    texts = to_dataset([("a", "b"), ("c", "d")], corpus=[0, 0])
    rules = PairRules(CleaningRules(drop=["misaligned"]))
    assert not find_broken(texts, [rules], report).any()
    (warning,) = report.warnings
    reason = "that needs 5,000 pairs of one direction, got 2."
    assert warning == f"Misaligned pairs are not looked for: {reason}"
