"""Sentences of many scripts: where they end, and that no letter loses its marks."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeps import sample
from tests.unicode_texts import SCRIPTS, sentences
from vanilla_transformer.decoding.sentence_splitter import (
    AbbreviationSplitter,
    sentence_ranges,
    split_simply,
)
from vanilla_transformer.pipeline_vanilla_transformer import (
    Segment,
    encode_segments,
    split_sentences,
)

each_script = pytest.mark.parametrize(
    "script", sample(SCRIPTS, "Latin in NFD", "Devanagari", "Thai")
)
STARTS_WITH_MARK = regex.compile(r"\p{M}")


def texts(script):
    space = SCRIPTS[script][3]
    in_capitals = sentences(script).map(str.capitalize)
    return st.lists(in_capitals, min_size=1, max_size=5).map(space.join)


@each_script
@settings(max_examples=20)
@given(data=st.data())
def test_sentences_join_to_the_text(script, data):
    text = data.draw(texts(script))
    segments = list(split_sentences(Segment(text, "\n")))
    assert "".join(segment.text + segment.separator for segment in segments) == text + "\n"
    period = SCRIPTS[script][2]
    expected = regex.findall(rf"[^\s{period}][^{period}]*{period}", text) if period else [text]
    assert [segment.text for segment in segments] == expected
    ranges = sentence_ranges(text, AbbreviationSplitter("en"))
    assert not any(STARTS_WITH_MARK.match(text, start) for start, _ in ranges)


def bytes_of(parts):
    return [[*range(len(part.encode()))] for part in parts]


@each_script
@settings(max_examples=20)
@given(data=st.data(), longest=st.integers(8, 40))
def test_long_sentences_are_cut_between_letters(script, data, longest):
    text = data.draw(sentences(script))
    (segments,) = encode_segments([[Segment(text, "")]], bytes_of, longest, longest)
    assert "".join(segment.text + segment.separator for segment in segments) == text
    assert not any(STARTS_WITH_MARK.match(segment.text) for segment in segments)
    assert all(
        len(segment.tokens) <= longest or len(regex.findall(r"\X", segment.text)) == 1
        for segment in segments
    )


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("का।", 8, ["का", "।"]),
        ("क्क्काका।", 9, ["क्", "क्", "का", "का।"]),
        (
            "ab" + "\u0301" * 9,
            8,
            ["a", "b\u0301\u0301", "\u0301" * 3, "\u0301" * 4],
        ),  # a letter with too many marks
    ],
)
def test_long_letters_and_conjuncts_are_cut(text, longest, expected):
    (segments,) = encode_segments([[Segment(text, "")]], bytes_of, longest, longest)
    assert [segment.text for segment in segments] == expected


@pytest.mark.parametrize(
    "sentences",
    [
        ["ខ្ញុំទៅ។", " ", "គាត់មក៕", " ", "ល្អ"],
        ["ខ្ញុំទៅ។", "", "គាត់មក។"],
        ["មាន ក ខ ។ល។", " ", "ល្អ។"],
        ["သူလာသည်။", " ", "ငါသွား၊ သည်။", "", "ကောင်းသည်။"],
        ["ང་འགྲོ། །", "", "ཁོང་ཡོང་།", " ", "ང་འགྲོ༎", " ", "ང"],
        ["እኔ ሄድኩ።", " ", "እሱ መጣ፧", " ", "ጥሩ"],
        ["Ի՞նչ ես անում։", " ", "Դա նա՞ է։", " ", "Օ՜ ինչ լավ է։"],
        ["Τι κάνεις;", " ", "Λέει «πού;»", " ", "Καλά\u037e", " ", "Ναι."],
        ["one; two."],
        ["行った｡", "", "来た．", "", "値は３．５です！", "", "はい﹗", "", "え"],
        ["वह है।", "", "हाँ॥", " ", "ठीक"],
        ["هل أنت؟\u200f", " ", "نعم۔", " ", "لا"],
        ["What‼\ufe0f", " ", "Yes⁉", " ", "No"],
        ["他说：「好。」", " ", "走了。"],
    ],
)
def test_split_sentences_knows_the_marks_of_scripts(sentences):
    segments = list(split_sentences(Segment("".join(sentences), "")))
    assert [part for segment in segments for part in segment[:2]] == [*sentences, ""]
    assert split_simply("".join(sentences)) == sentences[::2]
