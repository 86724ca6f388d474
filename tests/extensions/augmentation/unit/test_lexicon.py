"""The lexicon of a parallel text: content words, their translations and the forms of these."""

import pytest

from tests.corpora import aligned_pairs
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.augmentation.lexicon import fit_lexicon

PAIR = SentencePair("The small dog sleeps.", "Der kleine Hund schläft.")


def test_fit_lexicon_finds_content_words_and_their_forms():
    lexicon = fit_lexicon([pair for pair, _ in aligned_pairs(4000)])
    assert {word: lexicon[word] for word in ("dog", "cat")} == {
        "dog": {"Hund": "Hund"},
        "cat": {"Katze": "Katze"},
    }
    assert set(lexicon["red"]) == {"rote", "roten"} and len(set(lexicon["red"].values())) == 1
    assert "the" not in lexicon


@pytest.mark.parametrize(
    "pairs", [[], [PAIR], [SentencePair("dog", ""), *[SentencePair("", "Hund")] * 20]]
)
def test_fit_lexicon_finds_nothing_in_little_text(pairs):
    assert fit_lexicon(pairs) == {}


def test_fit_lexicon_finds_words_with_marks():
    things = [("कमरा", "room"), ("किताब", "book"), ("हिन्दी", "Hindi"), ("e\u0301cole", "school")]
    pairs = [
        SentencePair(f"क {word} {number}", f"a {other} {number}")
        for number in range(9)
        for word, other in things
    ]
    pairs += [SentencePair(f"ख {number}", f"b {number}") for number in range(90)]
    lexicon = fit_lexicon(pairs)
    assert {word: lexicon[word] for word, _ in things} == {
        word: {other: other} for word, other in things
    }
    thai = [SentencePair(f"ที่นี่ {number}", f"here {number}") for number in range(9)]
    assert (
        fit_lexicon(thai + [SentencePair(f"b {number}", f"b {number}") for number in range(90)])
        == {}
    )
