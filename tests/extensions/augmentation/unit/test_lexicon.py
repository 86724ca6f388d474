"""The lexicon of a parallel text: content words, their translations and the forms of these."""

import pytest

from tests.corpora import aligned_pairs
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.augmentation.lexicon import fit_lexicon

PAIR = SentencePair("The small dog sleeps.", "Der kleine Hund schläft.")


def test_fit_lexicon_finds_content_words_and_their_forms():
    pairs = [pair for pair, _ in aligned_pairs(4000)]
    lexicon = fit_lexicon(pairs)
    assert lexicon["dog"] == {"Hund": "Hund"}
    assert lexicon["cat"] == {"Katze": "Katze"}
    assert set(lexicon["red"]) == {"rote", "roten"}
    assert len(set(lexicon["red"].values())) == 1
    assert "the" not in lexicon


HALVES = [SentencePair("dog", ""), *[SentencePair("", "Hund")] * 20]


@pytest.mark.parametrize("pairs", [[], [PAIR], HALVES])
def test_fit_lexicon_finds_nothing_in_little_text(pairs):
    assert fit_lexicon(pairs) == {}


def test_fit_lexicon_finds_words_with_marks():
    things = {"कमरा": "room", "किताब": "book", "हिन्दी": "Hindi", "e\u0301cole": "school"}
    pairs, thai, others = [], [], []
    for number in range(9):
        thai.append(SentencePair(f"ที่นี่ {number}", f"here {number}"))
        for word, other in things.items():
            pairs.append(SentencePair(f"क {word} {number}", f"a {other} {number}"))
    for number in range(90):
        pairs.append(SentencePair(f"ख {number}", f"b {number}"))
        others.append(SentencePair(f"b {number}", f"b {number}"))
    lexicon = fit_lexicon(pairs)
    for word, other in things.items():
        assert lexicon[word] == {other: other}
    assert fit_lexicon(thai + others) == {}
