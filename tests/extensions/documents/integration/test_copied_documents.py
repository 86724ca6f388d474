"""A translation that is its source changes no byte, and one into capitals only letters of text and
white space.
"""

from functools import partial
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.document_translation import copy, shout, translate_document, update_document
from tests.sweeps import examples
from vanilla_transformer.decoding.sentence_splitter import split_simply

LINE_ENDS = ["\n", "\r\n", "\r\r\n"]
WORDS = ["dog", "A", "Why?", "the end.", "don't", "x-y", "3", "1,234.50"]
WORDS += ["{name}", "%s", "me@a.example", "- "]
MARKS = ["*", "**", "_", "`", "[", "]", "(", ")", "<", ">", "&", "#", "|"]
MARKS += ["!", '"', "'", "\\", "~", ":", "{", "}"]
TAGS = ["<b>", "</b>", "<i>", "</i>", "<br>", "<p>", "</p>"]
TAGS += ["<a href='b'>", "</a>", "<!-- c -->", "<code>x</code>"]
SPACES = [" ", "  ", "\t", "\n", "\n\n"]
CUE = "{}\n00:00:{:02d},000 --> 00:00:{:02d},500 x\n{}\n\n"


def texts(*pieces):
    pieces = st.sampled_from([*chain(*pieces)])
    return st.lists(pieces, max_size=12).map("".join)


def phrases(*pieces):
    """Return texts whose markup is beside words: within a word it is at one of its ends in a
    translation.
    """
    pieces = [f" {piece}" for piece in chain(*pieces)]
    return st.lists(st.sampled_from(pieces), max_size=12).map("".join)


def join_cues(header, texts_of_cues):
    """Return subtitles."""
    blocks = [header]
    for number, text in enumerate(texts_of_cues, start=1):
        blocks.append(CUE.format(number, number, number, text))
    return "".join(blocks)


def join_lines(lines):
    """Return the lines of a subtitle, which none of its texts breaks."""
    return "\n".join(" ".join(line.split()) for line in lines)


def cues(header, *pieces, build=texts):
    """Return subtitles, of which no text has a blank line or looks like times."""
    line = build(*pieces).filter(str.strip)
    contents = st.lists(line, min_size=1, max_size=3).map(join_lines)
    texts_of_cues = st.lists(contents, min_size=1, max_size=5)
    return texts_of_cues.map(partial(join_cues, header))


# Texts of each format that may hold anything, and texts whose translation into capitals has the
# same markup.
SOUPS = {
    "wrapped": texts(WORDS, MARKS, SPACES, ["> ", "1. ", "a long line of words that is full "]),
    "markdown": texts(
        WORDS,
        MARKS,
        TAGS,
        SPACES,
        ["- ", "> ", "# ", "---\n", "```\n", "!!! note ", "::: ", "    "],
    ),
    "html": texts(
        WORDS,
        MARKS,
        TAGS,
        SPACES,
        ["&amp;", "&#x41;", "<script>a</script>", "<pre>", "<img alt='a b'>"],
    ),
    "srt": cues("", WORDS, MARKS, TAGS, ["{\\an8}"]),
    "vtt": cues("WEBVTT\n\n", WORDS, TAGS[:4], ["&amp;", "&lt;", "<v Fred>", "<00:01.000>"]),
}
PLAIN = {
    "wrapped": phrases(WORDS, [" ", "\n", "\n\n", "> ", "1. "]),
    "markdown": phrases(WORDS, [" ", "\n\n", "# ", "*very* ", "[a](b) ", "`x`", "<br>", "**big**"]),
    "html": phrases(WORDS, TAGS, [" ", "\n", "&amp;", "&lt;", "&#65;", "<img alt='a b'>"]),
    "srt": cues("", WORDS, ["<i>a b</i>", "{\\an8}"], build=phrases),
    "vtt": cues("WEBVTT\n\n", WORDS, ["<i>a b</i>", "&amp;", "<00:01.000>"], build=phrases),
}


@pytest.mark.parametrize("format", SOUPS)
def test_translate_document_copies_each_byte(format):
    @examples(500)
    @given(SOUPS[format], st.sampled_from(LINE_ENDS))
    def copies(text, line_end):
        text = text.replace("\n", line_end)
        assert translate_document(text, format, copy, split_simply) == text

    copies()


@pytest.mark.parametrize("format", PLAIN)
def test_translate_document_changes_only_letters(format):
    @examples(500)
    @given(PLAIN[format], st.sampled_from(LINE_ENDS))
    def changes(text, line_end):
        text = text.replace("\n", line_end)
        translated = translate_document(text, format, shout, split_simply)
        assert "".join(translated.upper().split()) == "".join(text.upper().split())
        assert text.count(line_end) == translated.count(line_end) or format not in ("srt", "vtt")

    changes()


@pytest.mark.parametrize("format", ["html", "wrapped"])
def test_update_keeps_the_translation_of_what_did_not_change(format):
    @examples(100)
    @given(PLAIN[format], st.sampled_from(LINE_ENDS))
    def keeps(text, line_end):
        text = text.replace("\n", line_end)
        translated = translate_document(text, format, shout, split_simply)
        updated = update_document(text, format, text, translated)
        if format == "wrapped":
            assert updated == translated
        else:  # spaces around a segment are the ones of the text
            assert updated.split() == translated.split()

    keeps()
