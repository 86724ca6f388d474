"""Work on text of others grows in proportion to it: of every format, and of every rule, on every
repeated piece.
"""

import ast
import gc
import importlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import regex

import vanilla_transformer
from tests.document_translation import COLUMNS, NO_MESSAGES, block_translator, copy, shout
from tests.sweeps import rare
from vanilla_transformer.data.cleaning_rules import hash_pair, hash_repetition
from vanilla_transformer.data.damage import has_bad_encoding, has_markup
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.protection.icu_messages import parse_message
from vanilla_transformer.decoding.protection.inline_markup import parse_markup
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter, split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.augmentation.phrases import find_phrases
from vanilla_transformer.extensions.documents import parse_document
from vanilla_transformer.extensions.documents.line_breaks import join_lines, wrap
from vanilla_transformer.files.formats import DOCUMENT_FORMATS
from vanilla_transformer.files.text_files import (
    HEAD_BYTES,
    decode_document,
    fit_encoding,
    refuse_markup,
)
from vanilla_transformer.text.changes import Segment, find_changes, pair_segments
from vanilla_transformer.text.glossary import Glossary
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.protection import find_protected
from vanilla_transformer.text.scripts import count_scripts
from vanilla_transformer.text.translation_warnings import (
    WarningLimits,
    find_warnings,
    letter_ratio,
)
from vanilla_transformer.text.units import split_units

SIZES = (500, 2_000, 8_000)  # characters of a document or of a text for a rule
FEW = (1_000,)  # characters of a text for an expression
SHARES = 160
# Repeated pieces of texts. A new one is a row of this table.
PIECES = [
    *("*", "**", "_", "`", "```", "~", "~~", "!", "!!!", "#", "# ", "- ", "-", "+", "=", "^", "|", "||"),
    *(" ", "  \n", "\n", "\n\n", "\t", "\r", "\r\n", "\r\r\n", "\f", "\u00a0", "\u2028", "a ", "a\n", "a\t"),
    *("[", "]", "[[", "[a](", "[]()", "(", ")", "{", "}", "{{", "{%", "{#", "{a", "{ a", "<", ">", "<<", "<>"),
    *("&", "&amp;", "&#1;", "&#x", "&a", "&#38;"),
    *("<b>", "</b>", "<b>a</b>", "<a ", "<a b=", '<a b="', "<?xml ", "<?", "<!--", "-->", "<!--->", "<!", "</"),
    *("<meta ", "<br>", "<p>", "<p>a</p>", "<li>", "<script>", "<![CDATA[", "]]>", "<% ", "<?php ", "<x/>"),
    *('"', "'", '""', "''", "\\", "\\\\", "\\n", "\\u", "\\u0041", "\\'", "«", "“a”"),
    *("\u0301", "a\u0301", "\u200d", "\u00ad", "\ufeff", "\u202e", "日", "日、", "ก", "🙂", "👩\u200d"),
    *("0", "1", "1.", "1,", "1. ", "12 ", "%", "%s", "%1", "{0}", "{a}", "$", "$a", "${", "$1", "@", "@a"),
    *(":", ":: ", ":a:", "::", ";", ",", ", ", ".", "...", ". ", "a. ", "? ", "/", "a/", "//", "http://", "a@"),
    *("a", "A", "aB", "ab.", "a-", "a_", "a.b ", "Dr. ", "- a\n", "> ", "> a\n", "1) a\n", "| a ", "|-", "+++"),
    *("1 000", "11:00 ", "1995-", "1万", "٣", "1.2.", "1st", "พ.ศ. "),
    *("%%", "++", "[^a]", "[x] ", "![", "[!", ".cache/", "0:0", "00:00:01,000 --> 00:00:02,000\n", "{a, plural, "),
]  # fmt: skip
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
CUE = "00:00:01,000 --> 00:00:02,000\n"
TIMES = "1\n" + CUE


def as_it_is(text: str) -> str:
    return text


def in_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


class Frame(NamedTuple):
    """Where repeated pieces stand in a document: instead of `¤`, as `write` writes them."""

    text: str
    write: Callable[[str], str] = as_it_is
    member: str = ""  # of a zip


XLIFF = '<xliff version="1.2"><file source-language="en" target-language="de" original="x"><body>'
XLIFF += '<trans-unit id="1"><source>A¤b</source></trans-unit></body></file></xliff>'
PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
TS = '<TS version="2.1" language="de"><context><name>x</name><message><source>A¤b</source>'
TS += '<translation type="unfinished"></translation></message></context></TS>'
STRINGSDICT = '<plist version="1.0"><dict><key>a</key><dict><key>b</key><dict>'
STRINGSDICT += "<key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>"
STRINGSDICT += "<key>one</key>¤<key>other</key><string>A</string></dict></dict></dict></plist>"
CATALOG = '{"sourceLanguage": "en", "strings": {}}'
WORD = f'<w:document xmlns:w="{W}"><w:body>¤</w:body></w:document>'
SLIDE = f'<p:sld xmlns:p="{P}" xmlns:a="{A}">¤</p:sld>'
CONTENT = (
    f'<o:document-content xmlns:o="{ODF}:office:1.0" '
    f'xmlns:t="{ODF}:text:1.0">¤</o:document-content>'
)
PACKAGE = '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
PACKAGE += '<item href="a.xhtml" media-type="application/xhtml+xml"/></manifest></package>'
CONTAINER = '<container><rootfile full-path="a.opf"/></container>'
# The places of a format in which the pieces are, and those that only it repeats.
FRAMES: dict[str, list[Frame]] = {
    "html": [
        *map(Frame, ("¤", "<p>A ¤ b</p>", "<html><head>¤", "<html><meta charset=¤<", "<¤a")),
        *map(Frame, ('<p title="A¤b">a</p>', "<a ¤>a</a>", "<pre>A¤b</pre>", "<a b=¤>a", "<title>¤")),
    ],
    "xml": [
        *map(Frame, ("<d>A¤b</d>", '<d xml:space="preserve">A¤b</d>', "<d>¤", "<d ¤>a</d>", "¤<d>a</d>")),
        Frame("<d>A¤b</d>", escape),
        Frame('<d xml:space="preserve">A¤b</d>', escape),
        Frame('<resources><string name="a">A¤b</string></resources>', escape),
        Frame("<rss><channel><description>A¤b</description></channel></rss>", escape),
        Frame("<rss><channel><description><![CDATA[A¤b]]></description></channel></rss>"),
    ],
    "markdown": [
        *map(Frame, ("¤", "A¤b", "# A ¤ b", "| a |\n|---|\n| A ¤ b |", "> - A ¤", "[a](¤)", "[a][¤]")),
        *map(Frame, ("!!! note ¤", '!!! note "A¤b', "::: note a¤b{", "```{note} a¤", "::: a [¤", "/// a | ¤b")),
        *map(Frame, ("---\ntitle: ¤\n---\nA", "---\n¤", "+++\ntitle = ¤\n+++\nA", "import ¤", "<A ¤", "{{< ¤")),
        *map(Frame, ("\\[¤", "{% raw ¤", "%% ¤", "$$ ¤", "```\n¤", "<div>¤", "    ¤", "[^a]: ¤", "[a]: ¤")),
    ],
    "srt": [
        *map(Frame, (TIMES + "A¤B\n", "¤" + TIMES + "A\n", f"1\n¤{CUE}A\n", f"1\n{CUE[:-1]}¤\nA\n")),
        Frame(TIMES + "A\n¤\nB\n"),
        Frame(TIMES + "- A¤B\n- C"),
    ],
    "vtt": [
        *map(Frame, ("WEBVTT\n\n" + TIMES + "A¤B\n", "WEBVTT¤\n\n" + TIMES + "A\n", "WEBVTT\n\n¤" + TIMES)),
        Frame("WEBVTT\n\n" + TIMES + "A\n¤\nB\n", escape),
    ],
    "xliff": [Frame(XLIFF), Frame(XLIFF, escape), Frame(XLIFF.replace("<source", '<source xml:space="preserve"'), escape)],
    "po": [
        Frame(PO + 'msgid "A¤b"\nmsgstr ""\n', in_quotes),
        *map(Frame, (PO + '¤\nmsgid "A"\nmsgstr ""\n', PO + "# ¤\n", PO + "msgid ¤\n", "¤")),
    ],
    "ts": [Frame(TS), Frame(TS, escape)],
    "xcstrings": [
        Frame(CATALOG.replace("{}", '{"A¤b": {}}'), in_quotes),
        *map(Frame, ("¤", CATALOG.replace("{}", '{"a": {}¤}'))),
    ],
    "json": [
        Frame('{"a": "A¤b"}', in_quotes),
        Frame('{"¤": "A"}', in_quotes),
        Frame('{"a": "{n, plural, other{A¤b}}"}', in_quotes),
        *map(Frame, ("¤", '{"a": "A"¤}')),
    ],
    "yaml": [
        Frame('a: "A¤b"', in_quotes),
        *map(Frame, ("¤", "a: A¤b", "a: |\n  A¤b", "a: >\n\n  A\n  ¤", "a: 'A¤b'", "a: [A¤b]")),
    ],
    "csv": [
        Frame('key,note,text\na,b,"A¤b"', lambda text: text.replace('"', '""')),
        *map(Frame, ("key,note,text\na,b,A¤b", 'key,note,text\na,b,"A¤b', "key,note,text¤\na,b,c")),
    ],
    "tsv": [*map(Frame, ("key\tnote\ttext\na\tb\tA¤b", 'key\tnote\ttext\na\tb\t"A¤b', "key\tnote\ttext¤"))],
    "stringsdict": [
        Frame(STRINGSDICT.replace("¤", "<string>A¤b</string>"), escape),
        *map(Frame, (STRINGSDICT.replace("¤", "<string>A</string>¤"), STRINGSDICT.replace("one", "¤"))),
    ],
    "strings": [Frame('"a" = "A¤b";', in_quotes), *map(Frame, ("¤", '/* ¤ */ "a" = "A";', '"a" ¤= "A";'))],
    "properties": [Frame("a=A¤b", in_quotes), *map(Frame, ("¤", "a=A¤b", "a¤=A", "# ¤", "a=\\\n¤b"))],
    "fluent": [*map(Frame, ("¤", "a = A¤b", "a = A\n    ¤b", "a = { ¤", "a = {$n ->\n    *[other] A¤b\n}\n"))],
    "resx": [
        Frame('<root><data name="a" xml:space="preserve"><value>A¤b</value></data></root>', write)
        for write in (as_it_is, escape)
    ] + [Frame("<root>¤</root>")],
    "wrapped": [*map(Frame, ("¤", "A¤b", "A long line of words that is full\n¤b", "> ¤"))],
    "docx": [
        Frame(WORD.replace("¤", "<w:p><w:r><w:t>A¤b</w:t></w:r></w:p>"), escape, "word/document.xml"),
        Frame(WORD.replace("¤", "<w:p>¤</w:p>"), member="word/document.xml"),
        Frame(WORD, member="word/document.xml"),
    ],
    "pptx": [
        Frame(SLIDE.replace("¤", "<a:p><a:r><a:t>A¤b</a:t></a:r></a:p>"), escape, "ppt/slides/slide1.xml"),
        Frame(SLIDE, member="ppt/slides/slide1.xml"),
    ],
    "odf": [
        Frame(CONTENT.replace("¤", "<t:p>A¤b</t:p>"), escape, "content.xml"),
        Frame(CONTENT, member="content.xml"),
    ],
    "epub": [Frame("<html><body><p>A¤b</p></body></html>", escape, "a.xhtml"), Frame("¤", member="a.xhtml")],
}  # fmt: skip
RUN = "<w:r><w:t>a</w:t></w:r>"
WRAPPED_LINE = "a long line of words that is full\nand "
ENTRY = 'msgid "a {n}"\nmsgstr ""\n\n'
OWN_PIECES = {
    "docx": [
        *(RUN, "<w:r><w:t>a</w:t><w:tab/></w:r>", f"<w:p>{RUN}</w:p>", '<w:bookmarkStart w:id="1"/>'),
        '<w:r><w:rPr><w:sz w:val="{n}"/></w:rPr><w:t>a</w:t></w:r>',
        f"<w:p><w:r><w:ruby><w:rubyBase>{RUN}</w:rubyBase></w:ruby></w:r></w:p>",
    ],
    "pptx": ["<a:p><a:r><a:t>a</a:t></a:r></a:p>", '<a:lvl1pPr algn="l"/>'],
    "odf": [
        '<s:x-properties xmlns:s="y" s:writing-mode="lr-tb"/>',"<t:p>a</t:p>", "<t:p><t:span>a</t:span></t:p>"],
    "srt": ["{n}\n" + CUE + "a\n\n", "{n}\n" + CUE + "A a.\n\n", "- a\n- b\n", "<i>a</i> "],
    "vtt": ["{n}\n" + CUE + "a\n\n"],
    "po": [ENTRY, '#: a.c:1\n#, c-format\n' + ENTRY],
    "xcstrings": [',\n"a{n}": {}', ',\n"a{n}": {"localizations": {"en": {}}}'],
    "csv": ["\na{n},b,c", ',"c"', '"a\n', '""'],
    "tsv": ["\na{n}\tb\tc", '\t"c"', '"a\n', '"""', '\n"a\t'],
    "stringsdict": [
        "<key>other</key><string>a</string>",
        "<key>k</key><dict><key>other</key><string>a</string></dict>",
    ],
    "json": [',\n"a{n}_one": "b", "a{n}_other": "c"', "{n, plural, other{a}}", ',\n"a{n}": "b"', "[", '{"a":', ',\n"a{n}": {"b": ""}'],
    "yaml": ["a{n}: b\n", "- a\n", "  a\n", "a{n}: |\n  b\n\n", "a:\n- "],
    "strings": ['"a{n}" = "b";\n'],
    "properties": ["a{n}=b\n"],
    "fluent": ["a{n} = b\n", "\n    *[a] b"],
    "resx": ['<data name="a{n}"><value>b</value></data>\n'],
    "html": ["<p>a<b>b</b></p>\n", "<ul><li>a", "<td>a", "<!-- a -->", "<a href=b>a</a> ", "<ruby>a<rt>b"],
    "xml": ["<p>a <b>b</b></p>\n", "<p>", "<p/>\n"],
    "markdown": ["a\n\n", "- a\n\n", "# a\n", "| a |\n", "**a** ", "[a](b) ", "import 'a\n", "{% raw %}\n", "{{< math >}}\n", "`a` ", "[a]: b\n", "<b>a</b> ", "# a\n\n[a](#a-{n})\n", "<rt>a</rt>"],
    "wrapped": ["a word ", "a long line of words that is full\n", "a.\n\n"],
}  # fmt: skip

# Where these pieces stand, if not in the first place of the format.
OWN_PLACES = {"docx": 1, "pptx": 1, "odf": 1, "srt": 1, "vtt": 2}
OWN_PLACES |= {
    "po": 1,
    "json": 4,
    "strings": 1,
    "properties": 1,
    "stringsdict": 1,
    "resx": 2,
    "xcstrings": 2,
    "yaml": 1,
}
# Pieces on which the work grew with the square of the text, or its cube, before it was mended, or
# might.
ONCE_SLOW = {
    ("srt", 4): ["\n"],
    ("html", 1): ["%s"],
    ("html", 3): [" "],
    ("markdown", 7): ["!!!"],
    ("markdown", 9): [" "],
    ("markdown", 10): [" "],
    ("markdown", 13): ["["],
    ("xml", 6): [" "],
    ("xml", 7): [" "],
    ("xml", 4): ["<?xml "],
    ("xml", 9): ["[a]("],
    ("vtt", 0): [" "],
    ("xliff", 2): [" "],
    ("resx", 0): [" ", WRAPPED_LINE],
    ("po", 0): [" ", WRAPPED_LINE],
    ("json", 0): [" ", WRAPPED_LINE],
    ("properties", 0): [" "],
    ("strings", 0): [" "],
}


def repeat(piece: str, size: int) -> str:
    """Return about as many characters of a repeated piece, in which `{n}` stands for a number."""
    count = size // len(piece) + 1
    if "{n}" not in piece:
        return piece * count
    return "".join(piece.replace("{n}", str(number)) for number in range(1, count + 1))


def build_document(frame: Frame, piece: str, size: int) -> bytes:
    """Return a document of about a number of characters."""
    text = frame.text.replace("¤", frame.write(repeat(piece, size)))
    if not frame.member:
        return text.encode(errors="surrogatepass")
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("a.opf", PACKAGE)
        archive.writestr(frame.member, text)
        # A zip of repeated text is refused.
        archive.writestr("noise", os.urandom(len(text) // 50))
    return file.getvalue()


def translate(format: str, content: bytes) -> None:
    """Translate a document twice, into itself and into capitals, and fill one with messages."""
    text, encoding = decode_document(content, "a document", format)
    columns = COLUMNS.get(format, "")
    for model in (copy, shout):
        document = parse_document(text, format, Direction("en", "pl"), columns=columns)
        translator = block_translator(model, split_simply)
        translated = document.render(translator(document.blocks))
        fit_encoding(translated, encoding)
    if format in NO_MESSAGES:
        for source, existing in (
            (text, NO_MESSAGES[format]),
            (NO_MESSAGES[format], text),
            (text, text),
        ):
            with suppress(UserError):
                document = parse_document(source, format, existing=existing, columns=columns)
                document.render(document.blocks)


MOST = 6  # times the time at a size that the work may take at four times the size
_FACTOR = 4
_ENOUGH = 0.05  # seconds of processor time that are measured exactly enough
_LIMIT = 3.0  # seconds after which the work is stopped
_REPEATS = 3
_LARGEST = 10**6  # characters of a text; work that needs no time on so many is not measured further
_LEAST = 0.01  # seconds that the clock measures well


class StoppedError(BaseException):
    """The work took too long. No `except Exception` hides this."""


def _stop(number: int, frame: Any) -> None:
    raise StoppedError


def processor_seconds(work: Callable[[str], Any], text: str) -> float:
    """Return the processor time of work on a text, at most the limit.

    The work may refuse the text.
    """
    before = signal.signal(signal.SIGVTALRM, _stop)
    gc.disable()
    start = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT)
        with suppress(UserError, StoppedError):
            work(text)
        return time.process_time() - start
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.enable()


def measure_growth(
    work: Callable[[str], Any], build: Callable[[int], str], sizes: Sequence[int], floor: float
) -> float:
    """
    Return the ratio of the times of work on a text and on one of a quarter of its size, or 0 if it
    takes no time.

    A ratio that is too large is measured again, since other programs disturb the clock.

    Args:
        build: Returns a text of about a number of characters.
        sizes: Numbers of characters, of which the first is taken on which the work takes some time.
        floor: Seconds from which on a time tells something.
    """
    growth = float("inf")
    for _ in range(_REPEATS):
        growth = min(growth, _measure_once(work, build, sizes, floor))
        if growth <= MOST:
            break
    return growth


def _measure_once(
    work: Callable[[str], Any], build: Callable[[int], str], sizes: Sequence[int], floor: float
) -> float:
    """Return the ratio of times. A ratio that is too large is measured again on larger texts."""
    before = 0.0
    for size in sizes:
        before = processor_seconds(work, build(size))
        if before >= floor:
            break
    else:
        return 0.0
    ratios = list[float]()
    # The work would be stopped after the limit, and work without a loop would never take enough.
    while len(ratios) < 2 and before * MOST < _LIMIT and size < _LARGEST:
        seconds = processor_seconds(work, build(_FACTOR * size))
        if seconds > MOST * before:
            seconds = _least_seconds(work, build(_FACTOR * size))
            before = _least_seconds(work, build(size))
        if before > _LEAST:
            ratios.append(seconds / before)
            if ratios[-1] <= MOST:
                break
        before, size = seconds, _FACTOR * size
    if not ratios and size >= _LARGEST:
        return 0.0
    return min(ratios, default=before / _LEAST)  # without ratios, a short text took long


def _least_seconds(work: Callable[[str], Any], text: str) -> float:
    repeats = [processor_seconds(work, text)]
    while len(repeats) < _REPEATS and sum(repeats) < _ENOUGH:
        repeats.append(processor_seconds(work, text))
    return min(repeats)


def find_slow(
    work: Callable[[Any], Any],
    build: Callable[..., Any],
    pieces: Iterable[str],
    sizes: Sequence[int],
    floor: float,
) -> dict[str, float | str]:
    """Return the growth of work, or its error, on the pieces for which it grows faster than the
    text.
    """
    failures = dict[str, float | str]()
    for piece in pieces:
        try:
            growth = measure_growth(work, partial(build, piece), sizes, floor)
        except Exception as error:
            failures[piece] = repr(error)
            continue
        if growth > MOST:
            failures[piece] = round(growth, 1)
    return failures


def test_frames_cover_every_format():
    assert FRAMES.keys() == {*DOCUMENT_FORMATS}


PLACES = [(format, number) for format, frames in FRAMES.items() for number in range(len(frames))]


# `make test` measures a share of the pieces in each place, and `make test-slow` all.
@pytest.mark.parametrize("shares", [SHARES, rare(1)])
@pytest.mark.parametrize(("format", "number"), PLACES)
def test_translate_document_is_linear(format, number, shares):
    first = PLACES.index((format, number)) % shares
    pieces = [*PIECES[first::shares], *ONCE_SLOW.get((format, number), ())]
    if shares == 1 or number == OWN_PLACES.get(format, 0):
        pieces += OWN_PIECES.get(format, ())
    build = partial(build_document, FRAMES[format][number])
    assert find_slow(partial(translate, format), build, pieces, SIZES, 0.02) == {}


# Expressions over text of others are module constants of these.
ROOT = Path(vanilla_transformer.__file__).parent
WITH_EXPRESSIONS = [
    *(ROOT / folder for folder in ("text", "extensions/documents", "decoding/protection")),
    *(ROOT / "extensions/terms", ROOT / "data/readers"),
    ROOT / "extensions/augmentation/phrases.py",
    *(ROOT / "data/cleaning_rules.py", ROOT / "publishing/checks.py"),
    *(ROOT / "files/text_files.py", ROOT / "decoding/sentence_splitter.py"),
    *(ROOT / "decoding/segments.py", ROOT / "pipeline_vanilla_transformer.py"),
]
METHODS = {"match", "fullmatch", "search", "sub", "subn"}
METHODS |= {"split", "findall", "finditer"}
# What some expressions need before a repeated piece.
BEGINNINGS = [
    *("", "a", "\n", '"', "'", "(", "[", "[[", "{", "{{", "<a ", "<a b=", "<?xml ", "<!--", "&", "- ", "1. "),
    *("!!! note ", "::: note a", "```{note} a", ":::a[", "/// a | ", "===", "<html><meta charset=", "---\n"),
    *("00:00:01,000 -->", "import ", "export ", "title = ", "|", "%", "{a, plural, ", "{%raw", "\\[", "$"),
]  # fmt: skip


def find_expressions() -> Iterator[tuple[str, Any, str]]:
    """Yield the name, the expression and a method for each method of an expression that a module
    calls.
    """
    files = set()
    for path in WITH_EXPRESSIONS:
        files |= {*path.rglob("*.py")} if path.is_dir() else {path}
    for file in sorted(files):
        name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        used = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add((node.value.id, node.attr))
        for constant, value in vars(module).items():
            if isinstance(value, re.Pattern | regex.Pattern):
                for method in sorted(METHODS):
                    if (constant, method) in used:
                        yield f"{name}.{constant}.{method}", value, method


EXPRESSIONS = {name: (value, method) for name, value, method in find_expressions()}


def apply(expression: re.Pattern | regex.Pattern, method: str, text: str) -> None:
    content = text.encode() if isinstance(expression.pattern, bytes) else text
    if method == "finditer":
        list(expression.finditer(content))
    elif method in ("sub", "subn"):
        expression.sub(lambda match: match[0], content)
    else:
        getattr(expression, method)(content)


@pytest.mark.parametrize("shares", [SHARES, rare(1)])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression_is_linear(name, shares):
    work, slow = partial(apply, *EXPRESSIONS[name]), dict[Any, Any]()
    for number, beginning in enumerate(BEGINNINGS):
        pieces = PIECES[number % shares :: shares]

        def build(piece: str, size: int, beginning: str = beginning) -> str:
            return f"{beginning}{repeat(piece, size)}\x01b"

        for piece, growth in find_slow(work, build, pieces, FEW, 0.002).items():
            slow[beginning, piece] = growth
    assert slow == {}


def find_phrases_of_copy(words: list[str]) -> list:
    """Return the phrases of a text where each word is aligned with itself and with the first."""
    to_itself, from_first, to_first = set(), set(), set()
    for number in range(len(words)):
        to_itself.add((number, number))
        from_first.add((0, number))
        to_first.add((number, 0))
    phrases = []
    for links in (to_itself, from_first, to_first):
        phrases.extend(find_phrases(words, words, links, ()))
    return phrases


def pair_two_versions(text: str) -> list:
    """Return what changed in a text whose segments are its words and, once more, its parts."""
    segments = [Segment(word, f"`{word}`") for word in text.split(" ")]
    parts = [Segment(text[at : at + 9], text[at : at + 9]) for at in range(0, len(text), 9)]
    pairs = pair_segments([*segments, *parts], [*segments, *parts[1:], *parts[:1], *parts[:1]])
    return find_changes(parts, [before for before, _ in pairs])


def pair_swapped_versions(text: str) -> list:
    """Return pairs of as many segments as characters, of which each two change places."""
    segments = [Segment("a", f"#{number}") for number in range(len(text))]
    swapped = list[Segment]()
    for number in range(1, len(text), 2):
        swapped += segments[number], segments[number - 1]
    return pair_segments(segments, [*swapped, *segments[:2]])


# What loops over a text of others, by its name.
RULES: dict[str, Callable[[str], Any]] = {
    "AbbreviationSplitter": AbbreviationSplitter("en"),
    "find_phrases": lambda text: find_phrases_of_copy(text.split()),
    "find_protected": find_protected,
    "find_protected beside a run that is no language": lambda text: find_protected(f"a_b {text}"),
    "find_warnings": lambda text: find_warnings(text, text, WarningLimits()),
    "find_warnings of a model": lambda text: find_warnings(
        text, f"{text}\ufffd", WarningLimits(), language="en", is_spelled=True, aligned_end=1
    ),
    "has_bad_encoding": has_bad_encoding,
    "has_markup": has_markup,
    "hash_pair": lambda text: hash_pair(SentencePair(text, text)),
    "hash_repetition": lambda text: hash_repetition(
        "near_duplicates", SentencePair(text, text), ""
    ),
    "join_lines": lambda text: join_lines(text.split("\n")),
    "letter_ratio": letter_ratio,
    "pair_segments": pair_two_versions,
    "pair_segments in another order": pair_swapped_versions,
    "parse_markup": parse_markup,
    "parse_message": parse_message,
    "split_simply": split_simply,
    "split_units": split_units,
    "wrap": lambda text: wrap(text, 80),
    "count_scripts": count_scripts,
    "glossary": lambda text: Glossary([(f"{text[:90]} c", "x")]).find(text),
    "decode_document": lambda text: decode_document(text.encode(errors="replace"), "a", "html"),
    "refuse_markup": lambda text: refuse_markup(text.encode(errors="replace")[:HEAD_BYTES], "a"),
}


RULES_ONCE_SLOW = {"AbbreviationSplitter": ["`", "[!"], "glossary": ["^"]}


@pytest.mark.parametrize("shares", [SHARES, rare(1)])
@pytest.mark.parametrize("name", RULES)
def test_text_rule_is_linear(name, shares):
    first = [*RULES].index(name) % shares
    pieces = [*PIECES[first::shares], *RULES_ONCE_SLOW.get(name, ())]
    assert find_slow(RULES[name], repeat, pieces, SIZES, 0.01) == {}
