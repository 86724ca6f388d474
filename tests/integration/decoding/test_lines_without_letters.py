"""A line or sentence without a letter is its own translation, whatever a call asks for and by any
decoder.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.closeness import close_to
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline, pipeline_vanilla_transformer

WORDLESS = ["-", "...", "(1)", "***", "♪", "\u200b", "🙂", "12:30", "1 + 2 = 3", "—" * 600, "½ %"]
WORDS = "A man is sleeping."


@pytest.fixture(scope="module", params=["package", "carried"])
def translate(request):
    kinds = {
        "package": TranslationPipeline,
        "carried": pipeline_vanilla_transformer.TranslationPipeline,
    }
    return kinds[request.param](tiny_model(), tiny_tokenizer(), device="cpu", max_new_tokens=6)


@pytest.fixture(scope="module")
def aligned():
    return TranslationPipeline(
        tiny_model(alignment_heads=[[0, 0]]), tiny_tokenizer(), max_new_tokens=6
    )


@pytest.mark.parametrize("line", WORDLESS)
def test_line_without_letters_comes_back(translate, line):
    assert translate(line) == [{"translation_text": line}]


def test_other_lines_are_translated_as_without_them(translate):
    alone = [answer["translation_text"] for answer in translate([WORDS, "Two dogs."])]
    mixed = translate(["-", WORDS, "(1)", "Two dogs.", "♪"])
    assert [answer["translation_text"] for answer in mixed] == ["-", alone[0], "(1)", alone[1], "♪"]
    (answer,) = translate(f"***\n\n{WORDS}\n12\nTwo dogs.\n...")
    assert answer["translation_text"] == f"***\n\n{alone[0]}\n12\n{alone[1]}\n..."


@given(lines=st.lists(st.sampled_from([*WORDLESS[:5], WORDS, ""]), min_size=1, max_size=4))
def test_each_text_has_an_answer(translate, lines):
    answers = [answer["translation_text"] for answer in translate(lines)]
    assert [answer for line, answer in zip(lines, answers, strict=True) if line != WORDS] == [
        line for line in lines if line != WORDS
    ]


def test_n_best_has_as_many_of_a_line_without_letters(translate):
    answers = translate(["-", WORDS], num_beams=3, num_return_sequences=2)
    assert answers[0] == [{"translation_text": "-"}] * 2 and len(answers[1]) == 2


def test_scores_are_of_the_lines_with_letters(aligned):
    options = {"return_scores": True, "return_tokens": True, "return_warnings": True}
    (alone,), (mixed,), (certain,) = (
        aligned(text, **options) for text in (WORDS, f"-\n{WORDS}", "-")
    )
    assert mixed["score"] == close_to(alone["score"]) and mixed["tokens"][2:] == alone["tokens"][1:]
    assert mixed["log_probability"] == close_to(alone["log_probability"])
    assert certain["score"] == certain["log_probability"] == 0.0 and certain["warnings"] == []
    assert certain["tokens"] == mixed["tokens"][:1] == [{"text": "-", "log_probability": 0.0}]


def test_links_join_a_line_without_letters_to_itself(aligned):
    (alone,), (mixed,) = (
        aligned(text, return_alignments=True) for text in (WORDS, f"(1)\n{WORDS}")
    )
    units = [(place, place + 1, place, place + 1, 1.0) for place in range(3)]
    assert mixed["alignment"] == [*units, *(link.shift(4, 4) for link in alone["alignment"])]


def test_constraints_prefixes_and_alternatives_are_of_the_line_with_letters(aligned):
    for options in (
        {"constraints": ["dogs"], "num_beams": 4},
        {"target_prefix": "Two"},
        {"seed": 1, "do_sample": True, "num_beams": 1},
    ):
        (alone,), (mixed,) = aligned(WORDS, **options), aligned(f"-\n{WORDS}\n-", **options)
        assert mixed["translation_text"] == f"-\n{alone['translation_text']}\n-"
    alone, mixed = aligned(WORDS, alternatives=3), aligned(f"-\n{WORDS}", alternatives=3)
    assert [[f"-\n{each['translation_text']}" for each in row] for row in alone] == [
        [each["translation_text"] for each in row] for row in mixed
    ]


def test_sentences_without_letters_stay_within_their_line(aligned):
    (answer,) = aligned(f"{WORDS} ... {WORDS} (1)! {WORDS}", split_sentences=True)
    (alone,) = aligned(WORDS)
    assert (
        answer["translation_text"].count(alone["translation_text"]) >= 2
        and " (1)! " in answer["translation_text"]
    )
