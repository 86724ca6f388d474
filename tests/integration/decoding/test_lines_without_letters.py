"""A line or sentence without a letter is its own translation, whatever a call asks for and by any
decoder.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.closeness import close_to
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline, pipeline_vanilla_transformer

WORDLESS = ["-", "...", "(1)", "***", "♪", "\u200b", "🙂", "12:30", "1 + 2 = 3"]
WORDLESS += ["—" * 600, "½ %"]
CARRIED = pipeline_vanilla_transformer.TranslationPipeline
WORDS = "A man is sleeping."


@pytest.fixture(scope="module", params=[TranslationPipeline, CARRIED])
def translate(request):
    models = (tiny_model(), tiny_tokenizer())
    return request.param(*models, device="cpu", max_new_tokens=6)


@pytest.fixture(scope="module")
def aligned():
    model = tiny_model(alignment_heads=[[0, 0]])
    return TranslationPipeline(model, tiny_tokenizer(), max_new_tokens=6)


def texts_of(answers):
    return [answer["translation_text"] for answer in answers]


@pytest.mark.parametrize("line", WORDLESS)
def test_line_without_letters_comes_back(translate, line):
    assert translate(line) == [{"translation_text": line}]


def test_other_lines_are_translated_as_without_them(translate):
    one, two = texts_of(translate([WORDS, "Two dogs."]))
    mixed = translate(["-", WORDS, "(1)", "Two dogs.", "♪"])
    assert texts_of(mixed) == ["-", one, "(1)", two, "♪"]
    (answer,) = translate(f"***\n\n{WORDS}\n12\nTwo dogs.\n...")
    assert answer["translation_text"] == f"***\n\n{one}\n12\n{two}\n..."


any_line = st.sampled_from([*WORDLESS[:5], WORDS, ""])


@given(lines=st.lists(any_line, min_size=1, max_size=4))
def test_each_text_has_an_answer(translate, lines):
    for line, answer in zip(lines, texts_of(translate(lines)), strict=True):
        assert line == WORDS or answer == line


def test_n_best_has_as_many_of_a_line_without_letters(translate):
    answers = translate(["-", WORDS], num_beams=3, num_return_sequences=2)
    assert answers[0] == [{"translation_text": "-"}] * 2 and len(answers[1]) == 2


def test_scores_are_of_the_lines_with_letters(aligned):
    options = {"return_scores": True, "return_tokens": True, "return_warnings": True}
    (alone,) = aligned(WORDS, **options)
    (mixed,) = aligned(f"-\n{WORDS}", **options)
    (certain,) = aligned("-", **options)
    assert mixed["score"] == close_to(alone["score"])
    assert mixed["tokens"][2:] == alone["tokens"][1:]
    assert mixed["log_probability"] == close_to(alone["log_probability"])
    assert certain["score"] == certain["log_probability"] == 0.0
    assert certain["warnings"] == []
    dash = {"text": "-", "log_probability": 0.0}
    assert certain["tokens"] == mixed["tokens"][:1] == [dash]


def test_links_join_a_line_without_letters_to_itself(aligned):
    (alone,) = aligned(WORDS, return_alignments=True)
    (mixed,) = aligned(f"(1)\n{WORDS}", return_alignments=True)
    units = [(start, start + 1, start, start + 1, 1.0) for start in range(3)]
    links = [link.shift(4, 4) for link in alone["alignment"]]
    assert mixed["alignment"] == [*units, *links]


def test_constraints_and_prefixes_are_of_the_line_with_letters(aligned):
    """Ask for alternatives as well."""
    for options in (
        {"constraints": ["dogs"], "num_beams": 4},
        {"target_prefix": "Two"},
        {"seed": 1, "do_sample": True, "num_beams": 1},
    ):
        (alone,) = aligned(WORDS, **options)
        (mixed,) = aligned(f"-\n{WORDS}\n-", **options)
        assert mixed["translation_text"] == f"-\n{alone['translation_text']}\n-"
    alone = aligned(WORDS, alternatives=3)
    mixed = aligned(f"-\n{WORDS}", alternatives=3)
    for one, other in zip(alone, mixed, strict=True):
        assert [f"-\n{text}" for text in texts_of(one)] == texts_of(other)


def test_sentences_without_letters_stay_within_their_line(aligned):
    (answer,) = aligned(f"{WORDS} ... {WORDS} (1)! {WORDS}", split_sentences=True)
    (alone,) = aligned(WORDS)
    text = answer["translation_text"]
    assert text.count(alone["translation_text"]) >= 2 and " (1)! " in text
