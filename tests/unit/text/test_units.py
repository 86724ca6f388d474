"""Characters as readers count them, and words of letters."""

from itertools import chain

import pytest

from vanilla_transformer.text.units import (
    _GRAPHEME,
    _SINGLE,
    is_word_of_letters,
    split_graphemes,
)


def test_split_graphemes_keeps_marks_with_their_letters():
    for text in ("", "abc", "กำลัง", "👍🏽 a\u00ad\u200cb\r\n"):
        assert "".join(split_graphemes(text)) == text
    assert split_graphemes("हिन्दी") == ["हि", "न्दी"] and split_graphemes("e\u0301a") == [
        "e\u0301",
        "a",
    ]
    assert split_graphemes("می\u200cخ") == ["م", "ی\u200c", "خ"] and split_graphemes(
        "a\u00adb"
    ) == ["a\u00ad", "b"]


def test_split_graphemes_is_the_pattern_where_it_is_not_needed():
    characters = [*map(chr, chain(range(0xD800), range(0xE000, 0x20000)))]
    single = "".join(filter(_SINGLE.fullmatch, characters))
    assert len(single) > 100_000
    assert _GRAPHEME.findall(single) == split_graphemes(single) == [*single]
    for text in ("aä\u0301", "ä\u00ad", "ä\r\n", "\u1000\u102b", "한국ᄒ\u1161"):
        assert split_graphemes(text) == _GRAPHEME.findall(text) != [*text]


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
