"""A translation that is its source changes no byte, and one into capitals only letters of text and
white space.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.document_translation import copy, shout, translate_document
from tests.sweeps import examples
from vanilla_transformer.decoding.sentence_splitter import split_simply

LINE_ENDS = ["\n", "\r\n", "\r\r\n"]
WORDS = [
    "dog",
    "A",
    "Why?",
    "the end.",
    "don't",
    "x-y",
    "3",
    "1,234.50",
    "{name}",
    "%s",
    "me@a.example",
    "- ",
]
MARKS = [
    "*",
    "**",
    "_",
    "`",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "&",
    "#",
    "|",
    "!",
    '"',
    "'",
    "\\",
    "~",
    ":",
    "{",
    "}",
]
TAGS = [
    "<b>",
    "</b>",
    "<i>",
    "</i>",
    "<br>",
    "<p>",
    "</p>",
    "<a href='b'>",
    "</a>",
    "<!-- c -->",
    "<code>x</code>",
]
SPACES = [" ", "  ", "\t", "\n", "\n\n"]
CUE = "{}\n00:00:{:02d},000 --> 00:00:{:02d},500 x\n{}\n\n"


def texts(*pieces):
    return st.lists(
        st.sampled_from([piece for group in pieces for piece in group]), max_size=12
    ).map("".join)


def phrases(*pieces):
    """Return texts whose markup is beside words: within a word it is at one of its ends in a
    translation.
    """
    pieces_of_text = st.sampled_from([f" {piece}" for group in pieces for piece in group])
    return st.lists(pieces_of_text, max_size=12).map("".join)


def cues(header, *pieces, build=texts):
    """Return subtitles, of which no text has a blank line or looks like times."""
    lines = st.lists(build(*pieces).filter(lambda line: line.strip()), min_size=1, max_size=3)
    contents = lines.map(
        lambda lines_of_cue: "\n".join(" ".join(line.split()) for line in lines_of_cue)
    )
    return st.lists(contents, min_size=1, max_size=5).map(
        lambda every: header + "".join(CUE.format(n, n, n, text) for n, text in enumerate(every, 1))
    )


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
