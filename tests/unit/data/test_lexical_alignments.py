"""The lexical aligner: EM by its definition, more text than it is fitted to, and words that it has not seen."""

import math
import random
from collections import defaultdict

import pytest

from vanilla_transformer.data import lexical_alignments
from vanilla_transformer.data.demo_corpus import read_demo_alignments, read_demo_corpus
from vanilla_transformer.data.lexical_alignments import align_lexically
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import GoldAlignment, grow_diagonally, parse_alignment
from vanilla_transformer.evaluation.alignment_scores import score_alignments


def prior(place, places, row, rows):
    """Return the prior of a place of the source for a row of the target; place 0 is no word."""
    if place == 0:
        return 0.08
    weights = [math.exp(-2 * abs((row + 1) / rows - each / places)) for each in range(1, places + 1)]
    return 0.92 * weights[place - 1] / sum(weights)


def align_by_definition(texts):
    """Return the best source word of each target word after five steps of EM without the prior, and five with it."""
    probabilities = defaultdict(lambda: 1.0)
    for step in range(10):
        counts, totals = defaultdict(float), defaultdict(float)
        for sources, targets in texts:
            for row, target in enumerate(targets):
                shares = [
                    probabilities[source, target] * (prior(place, len(sources), row, len(targets)) if step >= 5 else 1)
                    for place, source in enumerate([None, *sources])
                ]
                for source, share in zip([None, *sources], shares, strict=True):
                    counts[source, target] += share / sum(shares)
                    totals[source] += share / sum(shares)
        probabilities = {key: count / totals[key[0]] for key, count in counts.items()}
    return [{*best_sources(probabilities, sources, targets)} for sources, targets in texts]


def best_sources(probabilities, sources, targets):
    for row, target in enumerate(targets):
        scores = [
            probabilities[source, target] * prior(place, len(sources), row, len(targets))
            for place, source in enumerate([None, *sources])
        ]
        best = max(range(len(scores)), key=scores.__getitem__)
        if best:
            yield best - 1, row


def test_align_lexically_does_what_em_does_by_definition(monkeypatch):
    monkeypatch.setattr(lexical_alignments, "_PAIRS_PER_CHUNK", 7)
    pairs = [*read_demo_corpus("train", 40), SentencePair("alone", "allein"), SentencePair("Dogs!", "")]
    texts = [[[word.strip('.,?!"').lower() for word in text.split()] for text in pair] for pair in pairs]
    forward = align_by_definition(texts)
    backward = align_by_definition([[target, source] for source, target in texts])
    backward = [{(source, target) for target, source in links} for links in backward]
    assert align_lexically(pairs) == grow_diagonally(forward, backward)


def shuffled_pairs(count):
    draw, words = random.Random(0), {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}
    sources = [draw.sample([*words], 3) for _ in range(count)]
    return [SentencePair(" ".join(each), " ".join(words[word] for word in reversed(each))) for each in sources]


def test_align_lexically_finds_words_that_occur_together():
    assert align_lexically(shuffled_pairs(40)) == [{(0, 2), (1, 1), (2, 0)}] * 40


def test_align_lexically_aligns_text_that_it_is_not_fitted_to(monkeypatch):
    monkeypatch.setattr(lexical_alignments, "FITTED_PAIRS", 40)
    monkeypatch.setattr(lexical_alignments, "_PAIRS_PER_CHUNK", 10)
    pairs = [*shuffled_pairs(60), SentencePair("unseen one two", "eins ungesehen zwei")]
    assert align_lexically(pairs) == [{(0, 2), (1, 1), (2, 0)}] * 60 + [{(1, 0), (2, 2)}]


def test_align_lexically_keeps_marks_at_the_end_of_words():
    pairs = [
        SentencePair("«नदी» नद।", "male, river"),
        *[SentencePair("नद", "male"), SentencePair("नदी?", "river")] * 5,
    ]
    assert align_lexically(pairs)[0] == {(0, 1), (1, 0)}


def test_align_lexically_accepts_blank_text():
    assert align_lexically([]) == []
    assert align_lexically([SentencePair("", ""), SentencePair("a", ""), SentencePair("", "b")]) == [set()] * 3


def test_align_lexically_is_near_the_gold_alignments_of_the_demo_corpus():
    pairs = read_demo_corpus("train", 1500)
    lines = read_demo_alignments("train", 1500)
    gold = [parse_alignment(line, pair, "train") for line, pair in zip(lines, pairs, strict=True)]
    scores = score_alignments(align_lexically(pairs), [GoldAlignment(links, links) for links in gold])
    assert scores.error_rate == pytest.approx(0.09, abs=0.03)
