"""The index finds the text at the smallest edit distance, as a comparison with all texts does."""

import random

import pytest

from vanilla_transformer.extensions.memory.fuzzy_index import (
    LEAST_SIMILARITY,
    FuzzyIndex,
    comparable_units,
    edit_distance,
)

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"]


def distance_by_table(units, others):
    """Return the edit distance by its table (Wagner and Fischer 1974)."""
    row = [*range(len(others) + 1)]
    for number, unit in enumerate(units, 1):
        last, row = row, [number]
        for column, other in enumerate(others):
            changed = last[column] + (unit != other)
            row.append(min(last[column + 1] + 1, row[column] + 1, changed))
    return row[-1]


def draw(generator, words, longest):
    return [generator.choice(words) for _ in range(generator.randrange(1, longest))]


def test_edit_distance_is_the_one_of_the_table():
    generator = random.Random(0)
    for _ in range(300):
        units, others = draw(generator, "abc", 9), draw(generator, "abcd", 9)
        assert edit_distance(units, others) == distance_by_table(units, others)


@pytest.mark.parametrize("most_counted", [0, 200_000])
def test_index_finds_the_most_similar_text(monkeypatch, most_counted):
    """Whether the frequent units are counted or looked up"""
    monkeypatch.setattr(
        "vanilla_transformer.extensions.memory.fuzzy_index._MOST_COUNTED", most_counted
    )
    generator = random.Random(0)
    texts = [" ".join(draw(generator, WORDS, 11)) for _ in range(300)]
    index, similar_texts = FuzzyIndex(texts), 0
    for _ in range(300):
        units = draw(generator, [*WORDS, "z"], 11)
        similarities = []
        for text in texts:
            others = text.split()
            longest = max(len(units), len(others))
            similarities.append(1 - distance_by_table(units, others) / longest)
        text, similarity = index.find(" ".join(units))
        if max(similarities) < LEAST_SIMILARITY:
            assert (text, similarity) == ("", 0)
        else:
            similar_texts += 1
            assert similarities[texts.index(text)] == similarity == max(similarities)
    assert similar_texts > 20


def test_index_without_units_finds_nothing():
    assert FuzzyIndex([]).find("a") == FuzzyIndex(["a", ""]).find(" ") == ("", 0)


def test_long_texts_take_little_room_and_are_not_compared():
    text = "a " * 20_000
    index = FuzzyIndex([text])
    assert sum(map(len, index._numbers)) < 10 * len(text)
    assert index.find(text) == ("", 0)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("Save 3 of 1000", ["save", "0", "of", "0"]),
        ("Delete {name}, now", ["delete", "0", ",", "now"]),
        ("mp3", ["mp3"]),
        ("日本語", ["日", "本", "語"]),
    ],
)
def test_values_are_one_unit(text, units):
    assert comparable_units(text) == units
