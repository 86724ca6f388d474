"""Alignments of words: the format of Moses, and the aligner that is fitted to a text."""

import math
import random
from collections import defaultdict

import pytest

from tests.corpora import aligned_pairs
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.alignments import word_alignments
from vanilla_transformer.extensions.alignments.alignment_scores import score_alignments
from vanilla_transformer.extensions.alignments.word_alignments import (
    GoldAlignment,
    align_lexically,
    grow_diagonally,
    parse_alignment,
    read_alignments,
    read_gold_alignments,
)

PAIRS = [SentencePair("a b c", "x y"), SentencePair("a", "x")]


def write(folder, text):
    (folder / "text.align").write_text(text)
    return folder / "text.align"


def test_read_alignments_returns_the_pairs_of_each_line(tmp_path):
    path = write(tmp_path, "0-0 2-1  1-1\n\n")
    assert read_alignments(path, PAIRS) == [{(0, 0), (2, 1), (1, 1)}, set()]


def test_read_gold_alignments_separates_sure_and_possible_pairs(tmp_path):
    path = write(tmp_path, "0-0 2p1 1-1\n0p0\n")
    first, second = read_gold_alignments(path, PAIRS)
    sure = {(0, 0), (1, 1)}
    assert first == (sure, sure | {(2, 1)})
    assert second == (set(), {(0, 0)})


WRONG = ["0-2", "3-0", "0", "0-", "a-b", "0-0-0", "-1-0", "0-99999999999"]
SIZES = "must have pairs such as 0-1 of 3 words of the source and 2 of the target, got"


@pytest.mark.parametrize(
    "read, text, message",
    [
        *(
            (read_alignments, f"0-0 {text}\n\n", f"{SIZES} '{text}' in line 1 of .*text.align")
            for text in WRONG
        ),
        (read_alignments, "0p0\n\n", "got '0p0' in line 1 of"),
        (
            read_alignments,
            "0-0\n",
            "text.align must have a line for each of 2 pairs of sentences, got 1",
        ),
        *(
            (read_gold_alignments, f"0-0\n{text}\n", "in line 2 of")
            for text in ("1p0", "0pp0", "0p", "0?0")
        ),
    ],
)
def test_alignments_that_do_not_fit_are_refused(read, text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path, text), PAIRS)


def test_grow_diagonally_adds_neighbors_of_words_without_links():
    first, forward, backward = (0, 0), (2, 1), (0, 1)
    # (2, 1) links word 2; (0, 1) backward links no new word, and (5, 5) is no neighbor
    grown = grow_diagonally([{first, (1, 1), forward, (5, 5)}], [{first, (1, 1), backward}])
    assert grown == [{first, (1, 1), forward}]
    row = {(0, 0), (1, 0), (2, 0)}  # with a neighbor of a neighbor
    assert grow_diagonally([row], [{first}]) == [row]
    assert grow_diagonally([{first}, set()], [{(1, 1)}, set()]) == [set(), set()]


def prior(position, places, row, rows):
    """Return the prior of a position of the source for a row of the target; 0 is no word."""
    if position == 0:
        return 0.08
    weights = []
    for other in range(1, places + 1):
        distance = abs((row + 1) / rows - other / places)
        weights.append(math.exp(-2 * distance))
    return 0.92 * weights[position - 1] / sum(weights)


def align_by_definition(texts):
    """Return the best source word of each target word after five steps of EM without the prior, and
    five with it.
    """
    probabilities = defaultdict(lambda: 1.0)
    for step in range(10):
        counts, totals = defaultdict(float), defaultdict(float)
        for sources, targets in texts:
            for row, target in enumerate(targets):
                shares = {}
                for position, source in enumerate([None, *sources]):
                    share = probabilities[source, target]
                    if step >= 5:
                        share *= prior(position, len(sources), row, len(targets))
                    shares[position] = share
                total = sum(shares.values())
                for position, source in enumerate([None, *sources]):
                    counts[source, target] += shares[position] / total
                    totals[source] += shares[position] / total
        probabilities = {}
        for (source, target), count in counts.items():
            probabilities[source, target] = count / totals[source]
    return [{*best_sources(probabilities, *pair)} for pair in texts]


def best_sources(probabilities, sources, targets):
    for row, target in enumerate(targets):
        scores = []
        for position, source in enumerate([None, *sources]):
            share = prior(position, len(sources), row, len(targets))
            scores.append(probabilities[source, target] * share)
        best = max(range(len(scores)), key=scores.__getitem__)
        if best:
            yield best - 1, row


def words_of(text):
    """Return the words of a text without marks, in small letters."""
    return [word.strip('.,?!"').lower() for word in text.split()]


def test_align_lexically_does_what_em_does_by_definition(monkeypatch):
    monkeypatch.setattr(word_alignments, "_PAIRS_PER_CHUNK", 7)
    pairs = read_demo_corpus("train", 40)
    pairs += [SentencePair("alone", "allein"), SentencePair("Dogs!", "")]
    texts = [[words_of(pair.source), words_of(pair.target)] for pair in pairs]
    forward = align_by_definition(texts)
    backward = align_by_definition([[target, source] for source, target in texts])
    assert align_lexically(pairs) == grow_diagonally(forward, backward)


def shuffled_pairs(count):
    draw = random.Random(0)
    words = {"one": "eins", "two": "zwei", "three": "drei"}
    words |= {"four": "vier", "five": "fünf"}
    pairs = []
    for _ in range(count):
        source = draw.sample([*words], 3)
        target = [words[word] for word in reversed(source)]
        pairs.append(SentencePair(" ".join(source), " ".join(target)))
    return pairs


def test_align_lexically_finds_words_that_occur_together():
    expected = [{(0, 2), (1, 1), (2, 0)}] * 40
    assert align_lexically(shuffled_pairs(40)) == expected


def test_align_lexically_aligns_text_that_it_is_not_fitted_to(monkeypatch):
    monkeypatch.setattr(word_alignments, "FITTED_PAIRS", 40)
    monkeypatch.setattr(word_alignments, "_PAIRS_PER_CHUNK", 10)
    pairs = [*shuffled_pairs(60), SentencePair("unseen one two", "eins ungesehen zwei")]
    expected = [{(0, 2), (1, 1), (2, 0)}] * 60
    assert align_lexically(pairs) == [*expected, {(1, 0), (2, 2)}]


def test_align_lexically_keeps_marks_at_the_end_of_words():
    pairs = [SentencePair("नद", "male"), SentencePair("नदी?", "river")] * 5
    pairs.insert(0, SentencePair("«नदी» नद।", "male, river"))
    assert align_lexically(pairs)[0] == {(0, 1), (1, 0)}


def test_align_lexically_accepts_blank_text():
    assert align_lexically([]) == []
    pairs = [SentencePair("", ""), SentencePair("a", ""), SentencePair("", "b")]
    assert align_lexically(pairs) == [set()] * 3


def test_align_lexically_is_near_gold_alignments():
    pairs, lines = zip(*aligned_pairs(1500), strict=True)
    gold = [parse_alignment(line, pair, "train") for line, pair in zip(lines, pairs, strict=True)]
    scores = score_alignments(
        align_lexically(pairs), [GoldAlignment(links, links) for links in gold]
    )
    assert scores.error_rate < 0.05
