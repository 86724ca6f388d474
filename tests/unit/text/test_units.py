"""Phrases are found in texts, as they are and with other endings."""

import unicodedata

import pytest

from vanilla_transformer.text.units import count_forms, is_form, is_word_of_letters, split_graphemes


def test_count_forms_counts_phrases_by_words():
    assert count_forms("große Villa", "In der großen Villa, große Villa.") == 2
    assert count_forms("große Villa", "In der großen Villa, Große Villa.", exactly=True) == 1
    assert count_forms("Villa", "Villain, Dorfvilla") == 1 and count_forms("a b c", "a b") == 0
    assert count_forms("schön", unicodedata.normalize("NFD", "Schönes Haus")) == 1


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


def test_split_graphemes_keeps_marks_with_their_letters():
    for text in ("", "abc", "กำลัง", "👍🏽 a\u00ad\u200cb\r\n"):
        assert "".join(split_graphemes(text)) == text
    assert split_graphemes("हिन्दी") == ["हि", "न्दी"] and split_graphemes("e\u0301a") == ["e\u0301", "a"]
    assert split_graphemes("می\u200cخ") == ["م", "ی\u200c", "خ"] and split_graphemes("a\u00adb") == ["a\u00ad", "b"]


@pytest.mark.parametrize(
    ("unit", "is_one"),
    [
        ("हिन्दी", True),
        ("cafe\u0301", True),
        ("a", False),
        ("e\u0301", False),
        ("ที่", False),
        ("a1", False),
        ("", False),
    ],
)
def test_is_word_of_letters(unit, is_one):
    assert is_word_of_letters(unit) == is_one
