"""Warnings about translations, by the tokenizer and the alignments of a model."""

import pytest
from transformers import AutoTokenizer

from tests.docs_pages import ROOT
from tests.tiny import tiny_tokenizer
from vanilla_transformer.decoding.answers import warning_finder
from vanilla_transformer.decoding.translations import Link
from vanilla_transformer.text.languages import Direction, add_language_tags

FRENCH = "Il était une fois un roi et une reine."
EN_DE = AutoTokenizer.from_pretrained(ROOT / "models/en-de")


@pytest.mark.parametrize(
    ("source", "text", "links", "expected"),
    [
        (FRENCH, "Ich bin da.", [], ["language"]),
        ("EMERGENCY EXIT ONLY", "Notausgang", [], ["capitals"]),
        ("I", "Ich", [], []),
        ("3", "3", [], []),
        ("The red house", "Das rote Haus ist", [Link(0, 13, 0, 13, 1.0)], ["ending"]),
        ("Not read", "Nicht gelesen worden", [Link(0, 3, 0, 5, 1.0)], []),
        (
            "Show details",
            "Die Details anzeigen",
            [Link(0, 4, 0, 3, 1.0), Link(5, 12, 4, 11, 1.0)],
            ["ending"],
        ),
        (
            "Show details",
            "Details dazu anzeigen",
            [Link(5, 12, 0, 7, 1.0), Link(0, 4, 8, 12, 1.0)],
            [],
        ),
        ("The red house", "Das rote Haus", [Link(8, 13, 9, 13, 1.0)], []),
    ],
)
def test_warning_finder_knows_the_model(source, text, links, expected):
    assert warning_finder(EN_DE, None, {})(source, text, links) == expected


def test_warning_finder_takes_the_language_of_the_request():
    assert warning_finder(EN_DE, None, {"src_lang": "fr"})(FRENCH, "Ich bin da.", ()) == []
    tokenizer = tiny_tokenizer()
    assert warning_finder(tokenizer, None, {})(FRENCH, "Ich bin da.", ()) == []
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("en", "nl")])
    assert warning_finder(tokenizer, None, {})(FRENCH, "Ich bin da.", ()) == ["language"]
