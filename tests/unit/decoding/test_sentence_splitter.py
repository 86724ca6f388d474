"""Sentence splitters keep abbreviations together, and lines come back from their sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.segments import splitter_of
from vanilla_transformer.decoding.sentence_splitter import (
    AbbreviationSplitter,
    find_splitter,
    sentence_ranges,
    split_line,
    split_simply,
)
from vanilla_transformer.pipeline_vanilla_transformer import Segment


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith slept.", "He woke up."]),
        ("en", ["Mr. and Mrs. Brown live on St. James St. in Boston.", "They have a dog, e.g. a poodle."]),
        ("en", ["It costs 3.50 dollars.", '"Really?" she asked.', "Yes!"]),
        ("de", ["Dr. Schmidt schläft.", "Er ist müde."]),
        ("de", ["Viele Tiere, z. B. Hunde, schlafen viel.", "Das ist bekannt."]),
        ("de", ["Am 3. Mai kam Prof. Weber an.", "Er blieb ca. zwei Tage."]),
    ],
)
def test_abbreviation_splitter_keeps_abbreviations_together(language, sentences):
    assert AbbreviationSplitter(language)(" ".join(sentences)) == sentences


def test_find_splitter_finds_functions_by_name():
    assert find_splitter("simple")("Dr. Smith slept.") == ["Dr.", "Smith slept."]
    assert find_splitter("textwrap:wrap")("One. Two.") == ["One. Two."]
    with pytest.raises(ValueError, match="`sentence_splitter` must be 'abbreviations', 'simple' or the place"):
        find_splitter("nowhere:split")


def test_sentence_ranges_rejects_a_splitter_that_changes_text():
    assert sentence_ranges(" a. b.", lambda text: ["a.", "b."]) == [(1, 3), (4, 6)]
    for wrong in (["b.", "a."], ["a."], ["a.", "B."], []):
        with pytest.raises(ValueError, match="in order and unchanged"):
            sentence_ranges(" a. b.", lambda text, wrong=wrong: wrong)
    for wrong in (None, "a. b.", [1]):
        with pytest.raises(ValueError, match="`sentence_splitter` must return a list of strings, got "):
            sentence_ranges(" a. b.", lambda text, wrong=wrong: wrong)


@given(st.text(st.sampled_from("ab. !?。\u00a0\t"), min_size=1), st.sampled_from(["", "\n", "\n \n"]))
def test_split_line_keeps_white_space(text, separator):
    line = Segment(text.strip() or "a", separator)
    segments = [*split_line(line, split_simply)]
    assert "".join(each.text + each.separator for each in segments) == line.text + separator
    assert all(each.text == each.text.strip() != "" for each in segments)


def test_splitter_of_follows_the_options():
    def splitter(split=None, name=None, **others):
        return splitter_of(TranslationOptions(split_sentences=split, sentence_splitter=name, **others))

    assert splitter() is None
    assert splitter(False, str.splitlines) is None
    assert splitter(None, str.splitlines) is str.splitlines
    assert splitter(True, "simple") is split_simply
    german = splitter(True, source_language="de")
    assert isinstance(german, AbbreviationSplitter) and german.language == "de"
    assert splitter(True, src_lang="deu_Latn").language == "de" and splitter(True).language == "en"
    assert splitter(True, src_lang="fr", source_language="pt_BR").language == "pt"
