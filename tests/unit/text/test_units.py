"""Phrases are found in texts, as they are and with other endings."""

import pytest

from vanilla_transformer.text.units import count_forms, is_form


def test_count_forms_counts_phrases_by_words():
    assert count_forms("große Villa", "In der großen Villa, große Villa.") == 2
    assert count_forms("große Villa", "In der großen Villa, Große Villa.", exactly=True) == 1
    assert count_forms("Villa", "Villain, Dorfvilla") == 1 and count_forms("a b c", "a b") == 0


@pytest.mark.parametrize(
    ("word", "wanted", "is_one"),
    [
        ("hundes", "hund", True),
        ("hunger", "hund", False),
        ("groß", "große", True),
        ("großes", "große", True),
        ("hunden", "hunde", True),
        ("häuser", "haus", False),
        ("hausaufgabe", "haus", False),
    ],
)
def test_is_form_compares_endings(word, wanted, is_one):
    assert is_form(word, wanted) == is_one
