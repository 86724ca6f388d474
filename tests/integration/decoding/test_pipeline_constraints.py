"""Constraints of a request to the pipeline: translations contain them, and mistakes get one
line.
"""

import re

import pytest

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.constraints import tokenize_constraint, tokenize_phrase
from vanilla_transformer.decoding.engine.phrase_constraints import WholeWords

TEXTS = ["A man is sleeping.", "Two dogs run.", "A man is sleeping."]
BEAMS = {"num_beams": 3, "max_new_tokens": 20}


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)


def texts_of(answers):
    return [answer["translation_text"] for answer in answers]


def test_pipeline_translations_contain_constraints(translate):
    *found, blank = texts_of(translate([*TEXTS, ""], constraints=["Hunde laufen", "Mann"], **BEAMS))
    assert all("Hunde laufen" in text and "Mann" in text for text in found) and blank == ""


def test_pipeline_takes_constraints_of_each_text(translate):
    wanted = [["Hunde"], [], ["grüne Gras", "Gras"]]
    found = texts_of(translate(TEXTS, constraints=wanted, **BEAMS))
    assert "Hunde" in found[0] and "grüne Gras" in found[2]
    assert found[1] == texts_of(translate(TEXTS[1:2], **BEAMS))[0]
    assert (
        texts_of(translate(iter(TEXTS), batch_size=1, constraints=iter(wanted), **BEAMS)) == found
    )
    assert texts_of(translate(TEXTS, constraints=[[], [], []], **BEAMS)) == texts_of(
        translate(TEXTS, **BEAMS)
    )


def test_pipeline_continues_the_last_word_of_no_constraint_but_a_stem(translate):
    """With random weights, almost every word is continued, unless the search forbids it."""
    words = ["Hund", "Mann"]
    for word in words:
        for text in texts_of(translate(TEXTS[:2], constraints=[word], **BEAMS)):
            assert re.search(rf"\b{word}\b", text), text
    stems = [
        text
        for word in words
        for text in texts_of(translate(TEXTS[:2], constraints=[f"{word}*"], **BEAMS))
    ]
    assert any(re.search(rf"\b{word}\w", text) for word in words for text in stems)


@pytest.mark.parametrize(
    "phrase, is_whole",
    [("Hund", True), ("Hund*", False), ("Hund.", False), (" Hund ", True), ("Hund *", False)],
)
def test_tokenize_constraint_tells_whole_words(tiny_tokenizer, phrase, is_whole):
    tokens = tokenize_constraint(tiny_tokenizer, phrase)
    stem = phrase if phrase.endswith(" *") else phrase.removesuffix("*")
    assert [*tokens] == tokenize_phrase(tiny_tokenizer, stem)
    assert isinstance(tokens, WholeWords) == is_whole


def test_pipeline_takes_force_words_ids_of_the_library(translate, tiny_tokenizer):
    ids = [tokenize_phrase(tiny_tokenizer, "Hunde laufen")]
    found = translate(TEXTS, force_words_ids=ids, return_scores=True, **BEAMS)
    assert found == translate(TEXTS, constraints=["Hunde laufen*"], return_scores=True, **BEAMS)


def test_pipeline_constructor_takes_constraints(tiny_tokenizer, translate):
    by_default = TranslationPipeline(
        tiny_model(), tiny_tokenizer, compile=False, constraints=["Hunde"], **BEAMS
    )
    assert texts_of(by_default(TEXTS)) == texts_of(translate(TEXTS, constraints=["Hunde"], **BEAMS))


def test_pipeline_reranks_constrained_candidates_by_risk(translate):
    (answer,) = translate(TEXTS[:1], constraints=["Hunde"], mbr="chrf", **BEAMS)
    assert "Hunde" in answer["translation_text"]


def test_pipeline_refuses_a_stream_with_too_few_constraints(translate):
    with pytest.raises(ValueError, match="but there are 1 for 2 texts"):
        list(translate(iter("ab"), constraints=iter([["a"]]), **BEAMS))


class NoUnknown:
    """A tokenizer whose vocabulary lacks a word."""

    all_special_ids = [3]

    def __call__(self, text_target, add_special_tokens):
        return {"input_ids": [[3, 7] if "Hund" in text_target[0] else []]}

    def convert_ids_to_tokens(self, token):
        return "<unk>"


@pytest.mark.parametrize("phrase, found", [("der Hund", "<unk>"), ("\u200b", "no token")])
def test_tokenize_phrase_refuses_unknown_tokens(phrase, found):
    message = f"A constraint must be in the model's vocabulary, but {phrase!r} gives {found}."
    with pytest.raises(ValueError, match=re.escape(message)):
        tokenize_phrase(NoUnknown(), phrase)
