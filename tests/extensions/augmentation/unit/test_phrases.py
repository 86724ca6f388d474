"""Phrases are consistent with the alignment of their sentences, and look like titles and labels."""

from collections import Counter
from itertools import product
from random import Random

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.augmentation.phrases import (
    draw_phrase,
    find_common_words,
    find_phrases,
)

WORD = st.sampled_from(["dog", "red", "a", "and,", "(so", "b.c", "42"])
PLACES = st.tuples(st.integers(0, 9), st.integers(0, 9))
COMMON = {"a"}


def spans(words):
    """Return all spans of one to seven words."""
    pairs = []
    for start, end in product(range(len(words)), range(len(words) + 1)):
        if 1 <= end - start <= 7:
            pairs.append((start, end))
    return pairs


def is_text(words):
    """Return whether words are a phrase of one side, without a look at the other side."""
    if "and," in words or "(so" in words:
        return False
    return words[-1] not in COMMON


def consistent(source, target, links):
    """Return what the definition of a phrase pair says, by trying all of them."""
    phrases = set()
    for (start, end), (first, last) in product(spans(source), spans(target)):
        inside, touching, sources, targets = set(), set(), set(), set()
        for word, other in links:
            in_source = start <= word < end
            in_target = first <= other < last
            if in_source or in_target:
                touching.add((word, other))
            if in_source and in_target:
                inside.add((word, other))
                sources.add(word)
                targets.add(other)
        begins_and_ends = {start, end - 1} <= sources and {first, last - 1} <= targets
        sizes = sorted([end - start, last - first])
        if (
            (inside == touching and begins_and_ends)
            and (1 < sizes[1] <= 2 * sizes[0])
            and is_text(source[start:end])
            and is_text(target[first:last])
        ):
            phrases.add(((start, end), (first, last)))
    return phrases


@given(
    source=st.lists(WORD, min_size=1, max_size=10),
    target=st.lists(WORD, min_size=1, max_size=10),
    drawn_links=st.sets(PLACES, max_size=12),
)
def test_find_phrases_finds_all_that_are_consistent(source, target, drawn_links):
    links = set()
    for word, other in drawn_links:
        if word < len(source) and other < len(target):
            links.add((word, other))
    phrases = list(find_phrases(source, target, links, COMMON))
    assert len(phrases) == len({*phrases})
    assert {*phrases} == consistent(source, target, links)


HOUSE = SentencePair("The red house is over there .", "Dort drüben ist das rote Haus zu sehen.")
LINKS = {(0, 3), (1, 4), (2, 5), (4, 1), (5, 0)}  # "is" and "ist" have no link


def drawn(pair, links, common=(), tags=()):
    """Return all phrases that are drawn with 200 seeds, and their aligned words."""
    phrases = {}
    for seed in range(200):
        text, words = draw_phrase(pair, links, Random(seed), {*common}, tags)
        phrases[text] = words
    return phrases


def test_draw_phrase_ends_where_the_links_end():
    assert drawn(HOUSE, LINKS) == {
        ("The red", "Das rote"): {(0, 0), (1, 1)},
        ("The red house", "Das rote Haus"): {(0, 0), (1, 1), (2, 2)},
        ("red house", "rote Haus"): {(0, 0), (1, 1)},
        ("Red house", "Rote Haus"): {(0, 0), (1, 1)},
        ("The red house is over", "Drüben ist das rote Haus"): {(0, 2), (1, 3), (2, 4), (4, 0)},
        ("The red house is over there", "Dort drüben ist das rote Haus"): LINKS,
        ("Over there", "Dort drüben"): {(0, 1), (1, 0)},
    }


def test_draw_phrase_ends_with_no_common_word():
    phrases = drawn(HOUSE, LINKS, common=["red", "over", "drüben", "there"])
    assert {text.source for text in phrases} == {"The red house", "red house", "Red house"}


def test_draw_phrase_draws_each_phrase_as_often():
    pair = SentencePair("so a b", "so c d")
    links = {(0, 0), (1, 1), (2, 2)}
    counts, capitals = Counter(), Counter()
    for seed in range(900):
        text, _ = draw_phrase(pair, links, Random(seed), ())
        capitals[text.source] += 1
        counts[text.source.casefold()] += 1
    assert counts.keys() == {"so a", "so a b", "a b"}
    for count in counts.values():
        assert 230 < count < 370
    assert min(capitals["a b"], capitals["A b"]) > 80


def move(links):
    """Return links whose source has one more word at its beginning."""
    return {(word + 1, other) for word, other in links}


@pytest.mark.parametrize("tag", ["<BT>", "BT"])
def test_draw_phrase_keeps_the_tag_of_a_source(tag):
    pair = HOUSE._replace(source=f"{tag} {HOUSE.source}")
    links = move(LINKS) | {(0, 7)}
    expected = {}
    for text, words in drawn(HOUSE, LINKS).items():
        expected[f"{tag} {text.source}", text.target] = move(words)
    assert drawn(pair, links, tags=[tag]) == expected


@pytest.mark.parametrize(
    ("pair", "links"),
    [
        (SentencePair("", ""), set()),
        (SentencePair("a b c", "d e f"), set()),
        (SentencePair("No, house!", "Nein, Haus!"), {(0, 0), (1, 1)}),
        (SentencePair("red house", "红房子。"), {(0, 0)}),
        (SentencePair("a b .", "c d ."), {(0, 0), (1, 2)}),
        (SentencePair("a b c", "d"), {(0, 0), (2, 0)}),
        (SentencePair("d", "a b c"), {(0, 0), (0, 2)}),
    ],
)
def test_draw_phrase_returns_a_sentence_without_phrases(pair, links):
    assert drawn(pair, links) == {pair: links}


def test_find_common_words_makes_up_half_of_the_text():
    sources = ["The A b", "the c d"] * 3 + ["the e"]
    targets = ["die a F", "g h i"] * 3 + ["k l m n"]
    texts = datasets.Dataset.from_dict({"source": sources, "target": targets})
    common = find_common_words(texts)
    words = " ".join([*sources, *targets]).lower().split()
    assert {"the", "a"} <= common
    counts = Counter(words)
    common_counts = [counts[word] for word in common]
    assert sum(common_counts) < len(words) / 2
    rarest = min(common_counts)
    for word in counts.keys() - common:
        assert counts[word] <= rarest
