"""Documents keep their markup at its words, what must survive, and all else byte for byte."""

import re
import sys
import time
from dataclasses import replace

import html5lib
import pytest

from tests.document_translation import (
    by_texts,
    contain,
    copy,
    copy_kept,
    reverse,
    shout,
    translate_document,
    without_alignment,
)
from tests.marked_up_texts import DOCTYPES, PAGES
from vanilla_transformer.decoding.protection.projection import proportional_links
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.extensions import documents
from vanilla_transformer.extensions.documents import (
    Block,
    parse_document,
    read_document,
)
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.protection import find_masks

SPLIT = AbbreviationSplitter("en")
DIRECTION = Direction("en", "de")
XML = """<?xml version='1.0' encoding='UTF-8' ?>
<!DOCTYPE d [ <!ENTITY n "x > y"> <!-- a ' quote --> ]>
<d  a='1'
   b="&quot;"><p>A &#8212; &n; &#x2014;<x /> <y></y>d <![CDATA[e < f]]></p>
  <empty/><q xml:space='preserve'>  a   b
 </q><?do it?><!-- a comment --></d>
<!-- the end -->
"""
XLIFF = """<xliff version="1.2"><file source-language="en" target-language="de" original="x"><body>
<trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>"""


ITS_RULE = """<d xmlns:i="http://www.w3.org/2005/11/its"><i:rules>
<i:translateRule translate='no' selector='{}'/></i:rules></d>"""


def translated(text, translate=shout, format="html", **options):
    return translate_document(text, format, translate, SPLIT, **options)


def target(text):
    """Return the target in an XLIFF text."""
    return text.partition("<target")[2].partition(">")[2].partition("</target>")[0]


RUBIES = [
    "a <ruby>dog<rt>B</rt></ruby> <ruby>run<rp>(</rp><rt>C</rt><rp>)</rp></ruby>",
    "a <ruby>d<rt>B</rt>og<rt>C</rt></ruby> run",
    "a <ruby><rb>d<rb>og<rt>B<rp>/<rt>C</ruby> run",
]
REVERSED_HTML = [
    ("<p>A <b>very <i>red</i></b> house.</p>", "<p>HOUSE. <b><i>RED</i> VERY</b> A</p>"),
    ("<p>One.<br>Two <img src='a b'> me</p>", "<p>ONE.<br> <img src='a b'> ME TWO</p>"),
    ("<p>Run <code>a b</code> &amp; go</p>", "<p>RUN <code>a b</code> GO &amp;</p>"),
    ("<script>a < b</script><pre>x y</pre>", "<script>a < b</script><pre>x y</pre>"),
    ("<td>a b</td>", "<td>B A</td>"),
    ("<div><button>a b</button></div>", "<div><button>B A</button></div>"),
    ("<select><option>a b</option></select>", "<select><option>B A</option></select>"),
    ("<noscript><p>a b</p></noscript>", "<noscript><p>B A</p></noscript>"),
    ("<p><b>&nbsp;<br></b><b> a </b></p>", "<p><b><br></b>&nbsp; <b>A</b> </p>"),
    ("<p>x <img alt='a b'> y</p>", "<p><img alt='B A'> Y X</p>"),
    ('<p title="a &quot;b&quot;">x</p>', '<p title="&quot;B&quot; A">X</p>'),
    ("<p title='a \"b\"'>x</p>", "<p title='\"B\" A'>X</p>"),
    ("<img alt=dog>", "<img alt=DOG>"),
    ('<a aria-label="a b" href="a b"></a>', '<a aria-label="B A" href="a b"></a>'),
    ('<input placeholder="a b" value="a b">', '<input placeholder="B A" value="a b">'),
    ('<input type=SUBMIT value="a b">', '<input type=SUBMIT value="B A">'),
    ('<input type=hidden value="a b">', '<input type=hidden value="a b">'),
    ('<meta content="a b" name=Description>', '<meta content="B A" name=Description>'),
    ('<meta content="a b" name=author>', '<meta content="a b" name=author>'),
    ('<p translate="no" title="a b">c d</p>', '<p translate="no" title="a b">c d</p>'),
    ('<p translate="No"><i>a b</i></p>c d', '<p translate="No"><i>a b</i></p>D C'),
    ('<li class="notranslate x">a b<li>c d', '<li class="notranslate x">a b<li>D C'),
    (
        "<div translate=no><div>a b</div>c d</div>e f",
        "<div translate=no><div>a b</div>c d</div>F E",
    ),
    (
        "<table><tr><td translate=no>a b<td>c d<tr><td>e f",
        "<table><tr><td translate=no>a b<td>D C<tr><td>F E",
    ),
    ("<title>a <b> b</title>", "<title>A &lt;b> B</title>"),
    ("<svg><title>a b</title><path/></svg> c d", "<svg><title>B A</title><path/></svg> D C"),
    ("<a title=x/>a b</a>", "<a title=X/>B A</a>"),
    ("<p><b class=notranslate id=x/>a b</b> c", "<p><b class=notranslate id=x/>a b</b> C"),
    ("a < b", "B &lt; A"),
    ("<p>&mdash; a</p><p>— b</p>", "<p>A &mdash;</p><p>B —</p>"),
    ("Two dogs<sup>1</sup> run", "RUN DOGS<sup>1</sup> TWO"),
    ("Two dogs<sup><a href=x>[1]</a></sup> run", "RUN DOGS<sup><a href=x>[1]</a></sup> TWO"),
    ("x log<sub>2</sub> y", "Y LOG<sub>2</sub> X"),
    ("on the 1<sup>st</sup> day", "DAY 1<sup>ST</sup> THE ON"),
    ("M<sup>me</sup> x<sub>i</sub>", "X<sub>I</sub> M<sup>ME</sup>"),
    ("A<i>Sub</i><b>Super</b> is a", "A IS A<i>SUB</i><b>SUPER</b>"),
    ("see<a href=x>here</a>now", "<a href=x>HERE</a>NOW SEE"),
    ("<a href=x>5</a>. A dog", "DOG A <a href=x>5</a>."),
    ("see page <a href=x>5</a> there", "THERE <a href=x>5</a> PAGE SEE"),
]
REVERSED = [
    (
        "xml",
        "<d><p>a <b>b</b></p><q translate='no'>n o</q></d>",
        "<d><p><b>B</b> A</p><q translate='no'>n o</q></d>",
    ),
    ("markdown", "# A *b*\n\n- c `d e`\n  f\n", "# *B* A\n\n- C `d e` F\n"),
    ("markdown", "   <u> `a * b` </u>\nd", "   <u>`a * b`</u> D"),
    (
        "markdown",
        "---\na: b\n---\n| a b | **c** |\n|--|--|\n",
        "---\na: b\n---\n| B A | **C** |\n|--|--|\n",
    ),
    (
        "srt",
        "1\n00:00:01,000 --> 00:00:02,000\n- A <i>b</i>\n",
        "1\n00:00:01,000 --> 00:00:02,000\n- <i>B</i> A\n",
    ),
    ("markdown", "see[here](x)now", "[HERE](x)NOW SEE"),
    ("markdown", "**See**[this page](x) it", "IT [PAGE THIS](x) **SEE**"),
    ("markdown", "[5](x). A *dog*", "*DOG* A [5](x)."),
    ("markdown", "see [**5**][r] there\n\n[r]: x", "THERE [**5**][r] SEE\n\n[r]: x"),
    ("json", '{"a": "see<link>here</link> a<b>B</b>"}', '{"a": "A<b>B</b> <link>HERE</link> SEE"}'),
    *(("html", f"{doctype}<p>a b</p>", f"{doctype}<p>B A</p>") for doctype in DOCTYPES),
    (
        "xml",
        "<?xml version='1.0'  encoding='latin1'?><d>a b</d>",
        "<?xml version='1.0'  encoding='UTF-8'?><d>B A</d>",
    ),
]
SHOUTED = [
    ("markdown", "A note[^1] here.\n\n[^1]: The text.\n", "A NOTE[^1] HERE.\n\n[^1]: THE TEXT.\n"),
    (
        "markdown",
        "A[^a] b.\n\n[^a]: Note.\n    More.\n\n    End.\n",
        "A[^a] B.\n\n[^a]: NOTE. MORE.\n\n    END.\n",
    ),
    ("markdown", "| a[^1] |\n|---|\n| [^2] b |\n", "| A[^1] |\n|---|\n| [^2] B |\n"),
    ("markdown", "> [!WARNING]\n> Do not\n> touch.\n", "> [!WARNING]\n> DO NOT TOUCH.\n"),
    (
        "markdown",
        "- > [!Note]- a\n  > b\n- > [!Tip]\n  > # c\n",
        "- > [!Note]- A\n  > B\n- > [!Tip]\n  > # C\n",
    ),
    ("markdown", "Not [!NOTE] [^no note]", "NOT [!NOTE] [^NO NOTE]"),
    ("xml", "<d>a ]]&gt; b<![CDATA[ c > d]]> e</d>", "<d>A ]]&gt; B C &gt; D E</d>"),
    # Attributes have namespaces.
    ("xml", "<d xmlns:i='http://www.w3.org/2005/11/its'><p i:translate='no'>x</p></d>", None),
    (
        "xml",
        "<d xmlns:its='x'><p its:translate='no'>x</p></d>",
        "<d xmlns:its='x'><p its:translate='no'>X</p></d>",
    ),
    (
        "xml",
        "<?xml version='1.0' encoding='Utf-8'?><d>x</d>",
        "<?xml version='1.0' encoding='Utf-8'?><d>X</d>",
    ),
    # Two elements with one name are well-formed.
    ("xml", "<d><p xml:id='x'>x</p></d>", "<d><p xml:id='x'>X</p></d>"),
    (
        "xml",
        "<d><p xml:id='x'>x</p><p xml:id='x'>y</p></d>",
        "<d><p xml:id='x'>X</p><p xml:id='x'>Y</p></d>",
    ),
    # No entity is expanded.
    ("xml", '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><d>x &b; y</d>', None),
    ("xml", '<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/hostname">]><d>x &a; y</d>', None),
]


MOVED = [
    *((reverse, "html", *row) for row in REVERSED_HTML),
    *((reverse, *row) for row in REVERSED),
    *((shout, *row) for row in SHOUTED),
]


@pytest.mark.parametrize("translate, format, text, expected", MOVED)
def test_translate_document_moves_markup_with_words(translate, format, text, expected):
    if expected is None:
        expected = text.replace("<d>x", "<d>X").replace("y</d>", "Y</d>")
    assert translated(text, translate, format) == expected


@pytest.mark.parametrize(
    "format, text, expected",
    [
        ("html", "<p>Click <img src='i'> here.</p>", "<p>CLICK <img src='i'> HERE.</p>"),
        (
            "html",
            "<p>Click <b><img src='i'></b> <i>on it</i></p>",
            "<p>CLICK <b><img src='i'></b> <i>ON IT</i></p>",
        ),
        ("html", "<p>At <img src='i'> <img src='j'></p>", "<p>AT <img src='i'> <img src='j'></p>"),
        ("xml", "<p>See <x/> (<y/> below) <z/>.</p>", "<p>SEE <x/> (<y/> BELOW) <z/>.</p>"),
        ("xml", "<p><x/> <y/> of <z/> done</p>", "<p><x/> <y/> OF <z/> DONE</p>"),
        ("xml", '<p xml:space="preserve">Go <x/> on</p>', '<p xml:space="preserve">GO <x/> ON</p>'),
        (
            "markdown",
            "Click ![i](j) *here* and <u></u> now",
            "CLICK ![i](j) *HERE* AND <u></u> NOW",
        ),
        ("markdown", "Click <u> here <i> and</u> there", "CLICK <u>HERE <i> AND</u> THERE"),
        ("markdown", "Click <u> here", "CLICK <u> HERE"),
        (
            "srt",
            "1\n00:00:01,000 --> 00:00:02,000\nA {\\an8} b\n",
            "1\n00:00:01,000 --> 00:00:02,000\nA {\\an8} B\n",
        ),
        (
            "srt",
            "1\n00:00:01,000 --> 00:00:02,000\nA <b> b <i>c\n",
            "1\n00:00:01,000 --> 00:00:02,000\nA <b> B <i>C\n",
        ),
    ],
)
def test_translate_document_keeps_space_beside_markup_without_text(format, text, expected):
    def translate(texts):
        return shout([" ".join(text.split()) for text in texts])

    assert translate_document(text, format, translate, SPLIT) == expected
    document = parse_document(text, format)
    unchanged = text if format == "markdown" else expected
    assert document.render(document.blocks).upper() == unchanged.upper()


def test_markdown_document_adds_no_space_after_a_closed_tag():
    document = parse_document("Click <u> here</u>—now", "markdown")
    (block,) = document.blocks
    shouted = replace(block, text=block.text.upper())
    assert document.render([shouted]) == "CLICK <u>HERE</u>—NOW"


def test_translate_document_keeps_space_beside_codes_of_xliff():
    source = (
        '<x id="1"/> <x id="2"/> of <x id="3"/> files.<x id="4"/> Go to <x id="5"/> <x id="6"/>'
    )
    expected = source.replace("of", "OF").replace("files", "FILES")
    expected = expected.replace("Go to", "GO TO")
    assert target(translated(XLIFF.format(source), shout, "xliff")) == expected


@pytest.mark.parametrize("page", PAGES, ids=range(len(PAGES)))
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_copied_page_is_the_same(page, line_end):
    page = "\ufeff" + page.replace("\n", line_end)
    assert translated(page, copy) == page


def normal(page):
    """Return a page in one case, with single spaces and without other ways to write a character."""
    page = re.sub(r"\s+", " ", page.casefold())
    page = page.replace("at&t", "at&amp;t").replace("> there", "&gt; there")
    return page.replace("cats.</a>", "cats</a>.")


def test_a_translated_page_differs_in_its_text_only():
    for translate in (copy_kept(shout), without_alignment(copy_kept(shout))):
        page = translated(PAGES[0], translate)
        assert page != PAGES[0]
        assert normal(page) == normal(PAGES[0])


@pytest.mark.parametrize("translate", [shout, reverse, without_alignment(reverse)])
def test_browsers_parse_a_translated_page_to_the_same_elements(translate):
    def elements(page):
        root = html5lib.parse(page, namespaceHTMLElements=False)
        names = [(str(element.tag), *sorted(element.keys())) for element in root.iter()]
        return sorted(names)

    assert elements(translated(PAGES[0], translate)) == elements(PAGES[0])


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_xml_changes_its_text_only(line_end):
    text = "\ufeff" + XML.replace("\n", line_end)
    assert translated(text, copy, "xml") == text
    document = translated(text, format="xml")
    expected = text.replace("<![CDATA[e < f]]>", "e &lt; f")
    expected = expected.replace("&#x2014;", "&#8212;")
    assert document.casefold() == expected.casefold()
    assert "&#8212; &n; &#8212;<x />" in document


@pytest.mark.parametrize(
    "format, text, expected, direction",
    [
        ("html", '<html lang="en"><p>a b', '<html lang="de"><p>B A', DIRECTION),
        (
            "html",
            "<html lang=en-US xml:lang='en'><p>a b",
            "<html lang=de xml:lang='de'><p>B A",
            DIRECTION,
        ),
        ("html", '<html lang="en"><p>a b', '<html lang="pt-BR"><p>B A', Direction(None, "pt_BR")),
        (
            "html",
            '<html lang="en"><p>a b',
            '<html lang="de"><p>B A',
            Direction("eng_Latn", "deu_Latn"),
        ),
        (
            "html",
            '<html lang="en"><p>a b',
            '<html lang="zh-Hant"><p>B A',
            Direction("eng_Latn", "zho_Hant"),
        ),
        ("html", '<html lang="en"><p>a b', '<html lang="en"><p>B A', Direction()),
        (
            "html",
            '<html lang="fr"><p>a b<p lang=en>c d',
            '<html lang="de"><p>B A<p lang=de>D C',
            DIRECTION,
        ),
        (
            "html",
            '<html lang="en"><p lang="fr" title="x">a b<p>c d',
            '<html lang="en"><p lang="fr" title="x">a b<p>D C',
            Direction(),
        ),
        (
            "html",
            '<html lang="en"><p lang="en-GB">a b<p lang="eng_Latn">c',
            '<html lang="de"><p lang="de">B A<p lang="de">C',
            DIRECTION,
        ),
        ("html", '<p>x <i lang="fr">a b</i> y</p>', '<p>X <i lang="fr">a b</i> Y</p>', DIRECTION),
        ("html", '<p lang="fr">a b</p>', '<p lang="fr">B A</p>', Direction()),
        ("html", '<p lang="">a b</p>', '<p lang="">B A</p>', DIRECTION),
        ("xml", "<d xml:lang='en'>a b</d>", "<d xml:lang='de'>B A</d>", DIRECTION),
        ("xml", "<d><p xml:lang='fr'>c d</p></d>", "<d><p xml:lang='fr'>c d</p></d>", DIRECTION),
        (
            "xml",
            "<d>e <i xml:lang='fr'>f g</i> <b xml:lang='en'>h</b></d>",
            "<d>E <i xml:lang='fr'>f g</i> <b xml:lang='de'>H</b></d>",
            DIRECTION,
        ),
        (
            "html",
            '<html lang="en"><p dir="ltr">a b',
            '<html dir="rtl" lang="ar"><p dir="ltr">B A',
            Direction("en", "ar"),
        ),
        ("html", "<html dir=LTR><p>a b", "<html dir=rtl><p>B A", Direction("en", "heb_Hebr")),
        ("html", "<html dir=rtl><p>a b", "<html dir=rtl><p>B A", Direction("en", "fa")),
        (
            "html",
            '<html dir="rtl"><p dir="RTL">a b<p dir="auto">c<p lang="he" dir="rtl">d',
            '<html dir="ltr"><p dir="ltr">B A<p dir="auto">C<p lang="he" dir="rtl">d',
            Direction("ar", "de"),
        ),
        ("html", '<html dir="rtl"><p>a b', '<html dir="rtl"><p>B A', Direction()),
        ("html", "<p>a b", "<p>B A", Direction("en", "ar")),
        ("xml", "<d>a b</d>", "<d>B A</d>", Direction("en", "ar")),
    ],
)
def test_languages_of_a_document_are_written_and_kept(format, text, expected, direction):
    assert translated(text, reverse, format, direction=direction) == expected


@pytest.mark.parametrize("format", ["html", "markdown", "vtt"])
@pytest.mark.parametrize("digits", ["9" * 4400, "0" * 4400 + "60", "0" * 4400])
def test_references_may_have_many_digits(format, digits):
    text = f"a &#{digits}; b"
    if format == "vtt":
        text = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{text}"
    expected = text.replace("a &", "A &").replace("; b", "; B")
    assert translated(text, copy, format) == text
    if format == "html":
        assert translated(text, format=format) == expected
        titled = translated(f'<p title="{text}">', format=format)
        assert titled == f'<p title="{expected}">'


@pytest.mark.parametrize("format", ["html", "xml"])
def test_translations_are_written_in_characters_of_the_format(format):
    answer = "a\0b\x08 ]]> c > d"
    document = translated("<p>a</p>", lambda texts: [(answer, None)], format)
    assert document == "<p>ab ]]&gt; c > d</p>"


@pytest.mark.parametrize(
    "format, text",
    [
        ("markdown", "\ufeff# A *b*\n\n- c\n  d\n\n```\ncode\n```\n"),
        ("wrapped", "> a line of words\n> b\n\nc d\n"),
        (
            "srt",
            "\ufeff1\n00:00:01,000 --> 00:00:02,000\nA b\nc d\n\n2\n00:00:03,000 --> "
            "00:00:04,000\nE\n",
        ),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\nA b"),
    ],
)
def test_lines_end_as_before(format, text):
    expected = translated(text, format=format)
    assert expected.startswith(text[:2])
    assert expected.endswith(text[-1:].upper())
    # The latter is of text that was written twice on Windows.
    for line_end in ("\r\n", "\r\r\n"):
        ended = text.replace("\n", line_end)
        expected_ended = expected.replace("\n", line_end)
        assert translated(ended, format=format) == expected_ended
        assert translated(ended, copy, format) == ended


@pytest.mark.parametrize(
    "format, text, seen",
    [
        ("html", "<p>sleeping<br/>Two dogs</p>", ["sleeping", "Two dogs"]),
        ("html", "<p>a dog<img src=x>and b</p>", ["a dog and b"]),
        ("html", "<p>a dog.<input>And b</p>", ["a dog.", "And b"]),
        ("html", "<a>Home</a><a>About</a>", ["Home About"]),
        ("html", "<p>un<wbr>usual<!-- c -->ly <b>b</b>old</p>", ["unusually bold"]),
        ("xml", "<d>sleeping<br/>Two dogs</d>", ["sleeping", "Two dogs"]),
        ("xml", "<d>sleeping<lb></lb>Two dogs</d>", ["sleeping", "Two dogs"]),
        ("xml", "<d>a dog<pb n='1'/>and<!-- c --> b</d>", ["a dog and b"]),
        ("xliff", XLIFF.format("sleeping<x ctype='lb'/>Two dogs"), ["sleeping", "Two dogs"]),
        (
            "xliff",
            XLIFF.format("sleeping<ph equiv='&lt;br/>' id='1'/>Two dogs"),
            ["sleeping", "Two dogs"],
        ),
        (
            "xliff",
            XLIFF.format("sleeping\nsoundly").replace("unit id", "unit xml:space='preserve' id"),
            ["sleeping", "soundly"],
        ),
        ("xliff", XLIFF.format("sleeping\n  soundly"), ["sleeping soundly"]),
        ("xliff", XLIFF.format(r"sleeping\nsoundly"), ["sleeping", "soundly"]),
        ("xliff", XLIFF.format("sleeping<x id='1'/><x id='2'/>Two dogs"), ["sleeping Two dogs"]),
        ("xliff", XLIFF.format("sleeping<bpt id='1'>b</bpt>Two dogs"), ["sleepingTwo dogs"]),
        ("markdown", "sleeping<br/>Two dogs", ["sleeping", "Two dogs"]),
        # Readings stand above their word.
        *(("html", f"<p>{ruby}s</p>", ["a dog runs"]) for ruby in RUBIES),
        *(("markdown", f"{ruby}s", ["a dog runs"]) for ruby in RUBIES[:2]),
    ],
)
def test_breaks_and_codes_glue_no_words(format, text, seen):
    read = []

    def translate(texts):
        read.extend(texts)
        return shout(texts)

    result = translated(text, translate, format)
    assert read == seen
    assert format == "xliff" or "wbr" in text or result.casefold() == text.casefold()


@pytest.mark.parametrize("format", ["html", "xml", "markdown"])
@pytest.mark.parametrize(
    "text",
    [
        "20 m<sup>2</sup> and H<sub>2</sub>O here",
        "C<sub>6</sub>H<sub>12</sub>O<sub>6</sub> is a sugar",
        "10<sup>6</sup> dogs and s<sup>-1</sup> too",
    ],
)
def test_digits_above_and_below_the_line_stay_in_their_word(format, text):
    text = text if format != "xml" else f"<d>{text}</d>"
    words = text.replace("<d>", "").replace("</d>", "").split()
    kept = [word for word in words if "<" in word]
    for translate in (shout, reverse, without_alignment(reverse)):
        document = translated(text, translate, format)
        assert all(word in document for word in kept), document
    assert translated(text, copy, format) == text


def align(target, pairs):
    """Return a function that translates each text to one, given the numbers of aligned words."""

    def translate(texts):
        (text,) = texts
        words = re.findall(r"\w+|[^\w\s]", text)
        others = re.findall(r"\w+|[^\w\s]", target)
        links = []
        for number, other in pairs:
            start, begin = text.index(words[number]), target.index(others[other])
            end, last = start + len(words[number]), begin + len(others[other])
            links.append((start, end, begin, last, 1.0))
        return [(target, links)]

    return translate


KNOWN = align("Das kenne ich schon lange.", [(0, 2), (1, 1), (2, 1), (3, 0), (5, 4), (6, 4)])
SEEN = align("Hast es gesehen?", [(0, 0), (2, 2), (3, 1), (4, 3)])


@pytest.mark.parametrize(
    ("format", "model", "text", "expected"),
    [
        ("markdown", KNOWN, "I have known [that](a) a long [time](b).", "[Das](a) kenne ich schon [lange](b)."),
        ("html", KNOWN, "I have known that a <b>long</b> <a>time</a>.", "Das kenne ich <a>schon</a> <b>lange</b>."),
        ("html", KNOWN, "I have known <i><a>that</a></i> a <i>long <a>time</a></i>.", "<i><a>Das</a></i> kenne ich schon <i><a>lange</a></i>."),
        ("markdown", SEEN, "Have [you](a) seen it?", "Hast [es](a) gesehen?"),
        ("json", SEEN, '["Have <a>you</a> seen it?"]', '["Hast <a>es</a> gesehen?"]'),
        ("html", SEEN, "Have <b>you</b> <i>seen it</i>?", "<b>Hast</b> <i>es gesehen</i>?"),
        ("html", SEEN, "Have you seen it<b>?</b>", "Hast es gesehen<b>?</b>"),
    ],
)  # fmt: skip
def test_markup_of_words_has_a_word_though_none_is_aligned(format, model, text, expected):
    assert translated(text, model, format) == expected


def fill(form):
    """Return a function that translates each text to a form that holds it."""

    def translate(texts):
        return [(form.format(text), None) for text in texts]

    return translate


@pytest.mark.parametrize("form", ["{}.", "Ja, {}", "{} und Nein"])
def test_markup_within_a_word_that_stays_is_at_the_same_letters(form):
    text = "<p>The <u>F</u>ile v<b>ers</b>ion x</p>"
    translate = fill(form)
    page = translated(text, translate)
    assert "<u>F</u>ile v<b>ers</b>ion" in page


@pytest.mark.parametrize(
    ("target", "units"),
    [
        ("Don't stop, well-known", ["Don't", "stop", ",", "well-known"]),
        ("यह हिन्दी है।", ["यह", "हिन्दी", "है", "।"]),
        ("cafe\u0301 e\u0301te\u0301", ["cafe\u0301", "e\u0301te\u0301"]),
        ("กินที่", ["กิ", "น", "ที่"]),
        ("ཀོད", ["ཀོ", "ད"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("我去", ["我", "去"]),
    ],
)
def test_units_keep_the_marks_of_their_letters(target, units):
    links = proportional_links(10, target)
    words = [target[link.target_start : link.target_end] for link in links]
    assert words == units


def test_links_of_words_have_a_character_of_a_short_source():
    links = proportional_links(2, "A very long translation of it (b)")
    assert all(0 <= link.source_start < link.source_end <= 2 for link in links)


# --- Text that must survive ---


COPYING = copy_kept(reverse)


def read_by_model(text, format="html", model=COPYING, **options):
    """Return a translated paragraph or segment, and the texts that the model read."""
    read = []

    def translate(texts):
        read.append(list(texts))
        return model(texts)

    document = f"<p>{text}</p>" if format == "html" else XLIFF.format(text)
    answer = translate_document(document, format, translate, SPLIT, **options)
    if format == "html":
        return answer.removeprefix("<p>").removesuffix("</p>"), read
    return target(answer), read


@pytest.mark.parametrize(
    "format, model, text, expected",
    [
        (
            "html",
            COPYING,
            "See <a href=x>https://a.example/x</a> and <b>me@mail.example</b> now.",
            "NOW. <b>me@mail.example</b> AND <a href=x>https://a.example/x</a> SEE",
        ),
        (
            "html",
            COPYING,
            "Drink H<sub>2</sub>O and <b>{name}</b> now",
            "NOW <b>{name}</b> AND H<sub>2</sub>O DRINK",
        ),
        (
            "html",
            COPYING,
            "Run <code>a b</code>https://a.example/x now",
            "RUN <code>a b</code>https://a.example/x NOW",
        ),
        (
            "html",
            copy_kept(reverse),
            "1 <b>(2</b>) 3. Two <i>men</i> run.",
            "1 <b>(2</b>) 3. RUN. <i>MEN</i> TWO",
        ),
        (
            "html",
            COPYING,
            "{a} (<b>(</b>( {b}. Two <i>men</i> run.",
            "{a} (<b>(</b>( {b}. RUN. <i>MEN</i> TWO",
        ),
        (
            "html",
            copy_kept(reverse),
            "{n, plural, one {# <code>f</code>} other {# files}} left.",
            None,
        ),
        (
            "html",
            COPYING,
            "<b>Now</b> {n, plural, one {a} other {b}} <i>files</i>",
            "<i>FILES</i> {n, plural, one {A} other {B}} <b>NOW</b>",
        ),
        (
            "xliff",
            COPYING,
            'Del <bpt id="1">&lt;b&gt;</bpt>{name}<ept id="1">&lt;/b&gt;</ept> <x id="2"/> of %s '
            '<g id="3">now</g>',
            '<g id="3">NOW</g> %s <x id="2"/> OF <bpt id="1">&lt;b&gt;</bpt>{name}<ept '
            'id="1">&lt;/b&gt;</ept> DEL',
        ),
        (
            "xliff",
            copy_kept(shout),
            'You {n, plural, one {# file} other {# <x id="1"/> files}}',
            'YOU {n, plural, one {# FILE} other {# <x id="1"/> FILES}}',
        ),
        (
            "html",  # models that copy nothing
            reverse,
            "Mail {name} <b>to me@mail.example</b> %s by https://a.example/x 🙂",
            "MAIL {name} <b>TO me@mail.example</b> %s BY https://a.example/x 🙂",
        ),
    ],
)
def test_block_translator_keeps_markup_at_text_that_survives(format, model, text, expected):
    expected = text.replace("left", "LEFT") if expected is None else expected
    models = [model, without_alignment(model)] if "Mail" in text else [model]
    for translate in models:
        assert read_by_model(text, format, translate)[0] == expected


def test_block_translator_tells_doubtful_blocks():
    def find_warnings(source, text, links):
        assert text == source.upper() and links
        if "dog" in source:
            return ["copy", source[0]]
        return []

    blocks = [Block("A dog. A dog. Two dogs."), Block("A cat."), Block("Dogs, one dog.")]
    translator = documents.BlockTranslator(by_texts(shout), SPLIT, True, find_warnings)
    for block, answer in zip(blocks, translator(blocks), strict=True):
        assert answer.text == block.text.upper()
    assert translator.doubts == {0: ["copy", "A", "T"], 2: ["copy", "D"]}
    translator(blocks[1:2])
    assert translator.doubts == {}


def test_block_translator_translates_branches_of_messages_and_text_around_lost_text():
    text = (
        "You have {n, plural, one {# file} other {%d and %s of # files}} now. <u>Two men</u> run."
    )
    expected = (
        "NOW. {n, plural, one {FILE #} other {%d AND %s OF # FILES}} HAVE YOU RUN. <u>MEN TWO</u>"
    )
    translated, read = read_by_model(text)
    assert translated == expected
    branches = ["You have {0} now.", "{0} file", "%d and %s of {0} files"]
    parts = ["Two men run.", "and", "of", "files"]
    assert sorted(sum(read, [])) == sorted([*branches, *parts])


def test_block_translator_masks_fixed_text_and_fields_together():
    model = copy_kept(shout)
    text = "Press <kbd>B c</kbd> at {a} now"
    translated, read = read_by_model(text, model=model, masks=["<ph0>", "<ph1>"])
    assert translated == "PRESS <kbd>B c</kbd> AT {a} NOW"
    assert read == [["Press <ph0> at <ph1> now"]]


def copy_words(translate, *words):
    """Return a function that copies words as a trained model copies names."""

    def copied(match):
        return "git" if match[0] == "GIT" else match[0].capitalize()

    def call(texts):
        answers = []
        for text, links in translate(texts):
            text = re.sub("|".join(words), copied, text, flags=re.I)
            answers.append((text, links))
        return answers

    return call


TOM = '<span translate="no">Tom</span> said that Tom is tired.'


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        (TOM, shout, '<span translate="no">Tom</span> SAID THAT TOM IS TIRED.'),
        (TOM, copy_words(shout, "Tom"), '<span translate="no">Tom</span> SAID THAT Tom IS TIRED.'),
        (
            TOM,
            copy_words(reverse, "Tom"),
            'TIRED. IS Tom THAT SAID <span translate="no">Tom</span>',
        ),
        (
            "Tom and <i translate=no>Tom</i> run",
            copy_words(reverse, "Tom"),
            "RUN <i translate=no>Tom</i> AND Tom",
        ),
        ("the <code>git</code> command is of git", shout, "THE <code>git</code> COMMAND IS OF GIT"),
        (
            "the <code>git</code> command is of git",
            copy_words(shout, "git"),
            "THE <code>git</code> COMMAND IS OF git",
        ),
        # A word of the translation that the source lacks
        (
            "use <kbd>on</kbd> now",
            lambda texts: [("AN on on", None)] if "on" in texts[0] else [("on", None)] * 2,
            "on <kbd>on</kbd> on",
        ),
    ],
)
def test_block_translator_translates_kept_words_elsewhere(text, model, expected):
    assert read_by_model(text, model=model)[0] == expected


def test_block_translator_keeps_many_addresses_in_linear_time():
    text = " ".join(f"word https://a.example/{number}" for number in range(500))
    for model in (shout, copy_kept(shout)):
        started = time.process_time()
        assert read_by_model(text, model=model)[0] == text.replace("word", "WORD")
        # It takes 0.1 s, and many minutes in quadratic time.
        assert time.process_time() - started < 5


def test_text_whose_markup_would_cross_is_kept():
    def cross(texts):
        crossed = {"a x b y c z.": "x A z B y C"}
        return [(crossed.get(text, text.upper()), None) for text in texts]

    text = "<b>a <code>x</code> b <code>y</code></b> <i>c <code>z</code></i>. Two <u>men</u> run."
    translated, _ = read_by_model(text, model=cross)
    expected = (
        "<b>A <code>x</code> B <code>y</code></b> <i>C <code>z</code></i>. TWO <u>MEN</u> RUN."
    )
    assert translated == expected


def test_lost_text_is_translated_again_under_constraints():
    seen = []

    def constrain(texts, phrases):
        seen.extend(zip(texts, phrases, strict=True))
        answers = []
        for text in texts:
            if "Press" in text:
                answers.append(("DRÜCK <ph1> <kbd>", None))
            else:
                answers.append(("LOST", None) if "x" in text else None)
        return answers

    text = "<p>Press <kbd>B c</kbd> {a}</p><p>x {b} y</p><p>no {c} z</p><p>fine</p>"
    options = {"splitter": SPLIT, "masks": ["<kbd>", "<ph1>"], "constrain": constrain}
    translated = translate_document(text, "html", without_alignment(shout), **options)
    masks = ["<kbd>", "<ph1>"]
    assert seen[0] == ("Press <kbd> <ph1>", masks)
    assert seen[1:] == [("x <kbd> y", ["<kbd>"]), ("no <kbd> z", ["<kbd>"])]
    expected = "<p>DRÜCK {a} <kbd>B c</kbd></p><p>X {b} Y</p><p>NO {c} Z</p><p>FINE</p>"
    assert translated == expected


@pytest.mark.parametrize("inner", [" über", "<b> über </b>"])
def test_kept_text_has_its_place_though_no_words_are_aligned(inner):
    translate = without_alignment(reverse)
    constrain = contain(translate)
    page = f"<p><kbd>Ctrl</kbd>{inner}</p>"
    text = translate_document(page, "html", translate, SPLIT, constrain=constrain)
    assert re.sub("</?[bp]>", "", text).split() == ["ÜBER", "<kbd>Ctrl</kbd>"]


def test_find_masks_takes_tokens_that_appear_in_text():
    class Tokenizer:
        all_special_tokens = ("<ph1>",)

        def get_added_vocab(self):
            return {"<ph2>": 9, "<ph1>": 8, "<ph0>": 7, "<s>": 1}

    assert find_masks(Tokenizer()) == ["<ph0>", "<ph2>"]


# --- Mistakes ---


@pytest.mark.parametrize(
    "format, text, message",
    [
        ("xml", "<a><b></a>", "must be well-formed XML"),
        (
            "xml",
            ITS_RULE.format("//a["),
            "of <its:translateRule> in line 2 must be an XPath of elements or attributes",
        ),
        ("xml", ITS_RULE.format("1 + 1"), "got '1 + 1'"),
        (
            "xml",
            ITS_RULE.format("a").replace("<i:rules>", "<i:rules queryLanguage='css'>"),
            "got 'a'",
        ),
        ("xliff", "<a/>", "must have the root element <xliff>, got <a>"),
        ("xliff", "<xliff version='2.0'/>", "has no attribute `trgLang`"),
        (
            "srt",
            "1\nnothing",
            "must be SubRip subtitles, but line 2 is 'nothing' instead of times such as 00:",
        ),
        (
            "srt",
            "1\n0:00:01 --> 0:00:02\na\n\n2\n0:00:03 --> x\nb",
            "but line 6 is '0:00:03 --> x' instead of times",
        ),
        (
            "vtt",
            "1\n00:01.000 --> 00:02.000\na",
            "must be WebVTT subtitles, but line 1 is '1' instead of WEBVTT",
        ),
        (
            "vtt",
            "WEBVTT\n\n00:01.000 --> 0d:02.000\na",
            "line 3 is '00:01.000 --> 0d:02.000' instead of times",
        ),
        ("srt", f"1\n{'9' * 5000}:00:01 --> 0:00:02\na", f"but line 2 is '{'9' * 79} instead of"),
        ("vtt", f"WEBVTT\n\n{'9' * 400}:00:01.0 --> 0:00:02.0\na", f"'{'9' * 79} instead of"),
        ("pdf", "", "`format` must be one of html, xml, markdown, srt, vtt, xliff, po, ts, "),
        ("html", "<b>" * 300 + "a", "must be nested at most"),
        ("html", "<div>" * 2000, "must be nested at most"),
    ],
)
def test_translate_document_names_the_mistake(format, text, message):
    with pytest.raises(ValueError, match="^[^\n]*$") as caught:
        translated(text, format=format)
    assert message in str(caught.value)


WRONG_NUMBERS = [lambda sentences: [], lambda sentences: [*sentences, None]]


@pytest.mark.parametrize("translate", WRONG_NUMBERS)
def test_another_number_of_translations_is_refused(translate):
    count = len(translate([""]))
    message = rf"^`translate` must return 1 translations, got {count}\.$"
    with pytest.raises(ValueError, match=message):
        documents.translate_document("<p>A.</p>", "html", translate, SPLIT)


def test_read_document_names_a_closed_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(OSError, match="must be open, but it is closed"):
        read_document(None, "html")


INLINE = [
    "<math><mi>x</mi></math>",
    "<b>cow</b>",
    "H<sub>2</sub>O",
    "<code>x</code>",
]


@pytest.mark.parametrize("inline", INLINE)
def test_work_grows_with_the_markup_of_a_paragraph(inline):
    def count_calls(number):
        calls, text = 0, f"<p>{f'the big {inline} of. ' * number}</p>"

        def count(frame, event, argument):
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            translated(text)
        finally:
            sys.setprofile(None)
        return calls

    count_calls(1)  # imports and compiled expressions
    assert count_calls(160) < 2.6 * count_calls(80)
