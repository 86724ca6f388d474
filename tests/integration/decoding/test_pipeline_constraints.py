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
    constraints = ["Hunde laufen", "Mann"]
    answers = translate([*TEXTS, ""], constraints=constraints, **BEAMS)
    *texts, blank = texts_of(answers)
    assert all("Hunde laufen" in text and "Mann" in text for text in texts)
    assert blank == ""


def test_pipeline_takes_constraints_of_each_text(translate):
    wanted = [["Hunde"], [], ["grüne Gras", "Gras"]]
    texts = texts_of(translate(TEXTS, constraints=wanted, **BEAMS))
    assert "Hunde" in texts[0] and "grüne Gras" in texts[2]
    assert texts[1] == texts_of(translate(TEXTS[1:2], **BEAMS))[0]
    stream = {"batch_size": 1, "constraints": iter(wanted)}
    assert texts_of(translate(iter(TEXTS), **stream, **BEAMS)) == texts
    without = translate(TEXTS, constraints=[[], [], []], **BEAMS)
    assert without == translate(TEXTS, **BEAMS)


def test_pipeline_continues_the_last_word_of_a_stem_alone(translate):
    """With random weights, almost every word is continued, unless the search forbids it."""
    is_continued = False
    for word in ("Hund", "Mann"):
        for text in texts_of(translate(TEXTS[:2], constraints=[word], **BEAMS)):
            assert re.search(rf"\b{word}\b", text), text
        for text in texts_of(translate(TEXTS[:2], constraints=[f"{word}*"], **BEAMS)):
            is_continued |= bool(re.search(rf"\b{word}\w", text))
    assert is_continued


PHRASES = [("Hund", True), ("Hund*", False), ("Hund.", False)]
PHRASES += [(" Hund ", True), ("Hund *", False)]


@pytest.mark.parametrize(("phrase", "is_whole"), PHRASES)
def test_tokenize_constraint_tells_whole_words(tiny_tokenizer, phrase, is_whole):
    tokens = tokenize_constraint(tiny_tokenizer, phrase)
    stem = phrase if phrase.endswith(" *") else phrase.removesuffix("*")
    assert [*tokens] == tokenize_phrase(tiny_tokenizer, stem)
    assert isinstance(tokens, WholeWords) == is_whole


def test_pipeline_takes_force_words_ids_of_the_library(translate, tiny_tokenizer):
    ids = [tokenize_phrase(tiny_tokenizer, "Hunde laufen")]
    options = {"return_scores": True, **BEAMS}
    answers = translate(TEXTS, force_words_ids=ids, **options)
    assert answers == translate(TEXTS, constraints=["Hunde laufen*"], **options)


def test_pipeline_constructor_takes_constraints(tiny_tokenizer, translate):
    options = {"constraints": ["Hunde"], **BEAMS}
    by_default = TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False, **options)
    assert texts_of(by_default(TEXTS)) == texts_of(translate(TEXTS, **options))


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


UNKNOWN = [("der Hund", "<unk>"), ("\u200b", "no token")]


@pytest.mark.parametrize(("phrase", "tokens"), UNKNOWN)
def test_tokenize_phrase_refuses_unknown_tokens(phrase, tokens):
    message = "A constraint must be in the model's vocabulary, but"
    message += f" {phrase!r} gives {tokens}."
    with pytest.raises(ValueError, match=re.escape(message)):
        tokenize_phrase(NoUnknown(), phrase)
