"""Words and letters of a translation at which markup begins and ends."""

import pytest

from vanilla_transformer.extensions.documents.projection import proportional_links


@pytest.mark.parametrize(
    ("target", "units"),
    [
        ("Don't stop, well-known", ["Don't", "stop", ",", "well-known"]),
        ("यह हिन्दी है।", ["यह", "हिन्दी", "है", "।"]),
        ("cafe\u0301 e\u0301te\u0301", ["cafe\u0301", "e\u0301te\u0301"]),
        ("กินที่", ["กิ", "น", "ที่"]),
        ("ཀོད", ["ཀོ", "ད"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("我去", ["我", "去"]),
    ],
)
def test_units_keep_the_marks_of_their_letters(target, units):
    assert [target[link.target_start : link.target_end] for link in proportional_links(10, target)] == units


def test_links_of_words_have_a_character_of_a_short_source():
    links = proportional_links(2, "A very long translation of it (b)")
    assert all(0 <= link.source_start < link.source_end <= 2 for link in links)
