"""Tokens stay where their text is when text that survives, markup and messages come back."""

import re

import pytest

from tests.translation import EOS, joined
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection import inline_markup
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch, remove_masks
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.token_texts import Token, move_tokens, to_entries
from vanilla_transformer.decoding.translations import Translation

MASKS = ["<ph0>", "<ph1>"]


def translation(text):
    """Return a text whose tokens are half a word at most, each with the space before."""
    ends = [match.end() for match in re.finditer(r"\s?<\w*>|\s?\S{1,3}", text)]
    tokens = [Token(end, -1.0) for end in ends]
    tokens.append(Token(len(text), -0.5, EOS))
    return Translation(text, tokens=tokens)


def tokens_of(text, answer, masks=MASKS, step=lambda decode: decode):
    """Return the tokens of the translation of a text, given the answer of a model to what it
    sees.
    """

    def decode(sentences, options, report):
        return [[translation(answer(sentence.text))] for sentence in sentences]

    search = ProtectedSearch(step(decode), TranslationOptions(protect=True), masks)
    ((kept,),) = search([Sentence(text, "", [1])], print)
    tokens = to_entries(kept.tokens, kept.text)
    assert joined(tokens) == kept.text
    probabilities = {token["log_probability"] for token in tokens}
    assert {probability for probability in probabilities if probability} <= {-1, -0.5}
    return [token["text"] for token in tokens]


def shout(text):
    return " ".join(word if "<" in word else word.upper() for word in text.split(" "))


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("see {a} now", shout, ["SEE", " {a}", " NOW", EOS]),
        ("see https://a.b/see men", shout, ["SEE", " https://a.b/see", " MEN", EOS]),
        # With spaces of the source.
        ("see {a} men", lambda text: "MEN<ph0>SEE", ["MEN", " {a}", " SEE", EOS]),
        ("{a}s %s", lambda text: "<ph1> <ph0> s", ["%s", " {a}", "s", EOS]),
        # The model knows no masks.
        ("see {abcd} now", lambda text: "NOW {abcd} SEE", ["NOW", " {ab", "cd}", " SEE", EOS]),
        ("see {abcd} now", lambda text: "NOW{abcd} SEE", ["NOW", " {ab", "cd}", " SEE", EOS]),
        # Only the text around is translated.
        (
            "see {a} now",
            lambda text: text.upper() if "<" not in text else "",
            ["SEE", EOS, " {a}", " NOW", EOS],
        ),
        ("see {a} now", lambda text: "%d", ["see", "", EOS, " {a}", " now", "", EOS]),
        # Nothing is translated.
        ("{a} 🙂", shout, ["{a}", " 🙂"]),
        ("it&#39;s <b>a b</b> c", shout, ["IT&#39;", "S", " <b>A", " B", "</b> C", EOS]),
        ("see<br/>men", shout, ["SEE", EOS, "<br/>MEN", EOS]),
        (
            "it''s {n, plural, one {a # b} other {}} c",
            shout,
            ["IT", "''S", " {n, plural, one {A", " #", " B", EOS, "} other {}}", " C", EOS],
        ),
    ],
)
def test_tokens_are_where_their_text_is(text, answer, expected):
    masks = () if "abcd" in text else MASKS
    assert tokens_of(text, answer, masks) == expected


def test_tokens_of_masks_that_are_removed_have_no_text():
    tokens = tokens_of("see men", lambda text: "SEE <ph1> MEN", step=remove_masks)
    assert tokens == ["SEE", "", " MEN", EOS]


def test_tokens_of_a_translation_whose_spans_cross_have_no_text(monkeypatch):
    monkeypatch.setattr(inline_markup, "join_block", lambda block, sentences: None)
    assert tokens_of("<b>see</b> me", shout) == ["<b>see</b> me", "", "", EOS]


def test_tokens_of_white_space_stay_in_a_text_that_does_not_change():
    tokens = [Token(1, 0.0), Token(2, 0.0)]
    assert move_tokens(tokens, " a", " a") == tokens


def test_entries_have_all_text_and_names_of_special_tokens_have_none():
    entries = to_entries([Token(1, -1.0), Token(3, -0.5, EOS), Token(3, -1.0)], "abc</b>")
    assert [entry["text"] for entry in entries] == ["a", EOS, "bc", "</b>"]
    assert entries[-1]["log_probability"] == 0.0
