"""HTML and XML keep all but their translated text, byte for byte."""

import re

import html5lib
import pytest

from tests.fake_translation import copy, copy_kept, reverse, shout, without_alignment
from tests.whole_pages import DOCTYPES, PAGES
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.extensions.documents import parse_document, translate_document
from vanilla_transformer.text.languages import Direction

SPLIT = AbbreviationSplitter()
XML = """<?xml version='1.0' encoding='UTF-8' ?>
<!DOCTYPE d [ <!ENTITY n "x > y"> <!-- a ' quote --> ]>
<d  a='1'
   b="&quot;"><p>A &#8212; &n; &#x2014;<x /> <y></y>d <![CDATA[e < f]]></p>
  <empty/><q xml:space='preserve'>  a   b
 </q><?do it?><!-- a comment --></d>
<!-- the end -->
"""
XLIFF = """<?xml version="1.0"?>
<xliff version='1.2' ><file source-language="en" target-language="de" original='x'  ><body>
  <trans-unit id='1'>
    <source xml:lang="en">A man is sleeping{}Two dogs</source>
  </trans-unit>
  <trans-unit id="2"><source>yes</source><target state = 'new'/></trans-unit>
</body></file></xliff>
"""


def translated(text, translate=shout, format="html", **options):
    return translate_document(text, format, translate, SPLIT, **options)


@pytest.mark.parametrize("page", PAGES, ids=range(len(PAGES)))
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_copied_page_is_the_same(page, line_end):
    page = "\ufeff" + page.replace("\n", line_end)
    assert translated(page, copy) == page


def normal(page):
    """Return a page in one case, with single spaces and without other ways to write a character."""
    page = re.sub(r"\s+", " ", page.casefold())
    return page.replace("at&t", "at&amp;t").replace("> there", "&gt; there").replace("cats.</a>", "cats</a>.")


def test_a_translated_page_differs_in_its_text_only():
    for translate in (copy_kept(shout), without_alignment(copy_kept(shout))):
        found = translated(PAGES[0], translate)
        assert found != PAGES[0]
        expected = normal(PAGES[0]).replace("a<wbr>b un<!-- c -->usual", "ab<wbr> unusual<!-- c -->")
        assert normal(found) == expected


@pytest.mark.parametrize("translate", [shout, reverse, without_alignment(reverse)])
def test_browsers_parse_a_translated_page_to_the_same_elements(translate):
    def elements(page):
        return sorted(
            (str(element.tag), *sorted(element.keys()))
            for element in html5lib.parse(page, namespaceHTMLElements=False).iter()
        )

    assert elements(translated(PAGES[0], translate)) == elements(PAGES[0])


@pytest.mark.parametrize("doctype", DOCTYPES)
def test_a_doctype_stays(doctype):
    found = translated(f"{doctype}<p>a b</p>", reverse)
    assert found == f"{doctype}<p>B A</p>"


@pytest.mark.parametrize(
    "text, expected",
    [
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
        ("<div translate=no><div>a b</div>c d</div>e f", "<div translate=no><div>a b</div>c d</div>F E"),
        ("<table><tr><td translate=no>a b<td>c d<tr><td>e f", "<table><tr><td translate=no>a b<td>D C<tr><td>F E"),
        ("<title>a <b> b</title>", "<title>A &lt;b> B</title>"),
        ("<svg><title>a b</title><path/></svg> c d", "<svg><title>a b</title><path/></svg> D C"),
        ("<a title=x/>a b</a>", "<a title=X/>B A</a>"),
        ("<p><b class=notranslate id=x/>a b</b> c", "<p><b class=notranslate id=x/>a b</b> C"),
        ("a < b", "B &lt; A"),
        ("<p>&mdash; a</p><p>— b</p>", "<p>A &mdash;</p><p>B —</p>"),
    ],
)
def test_translate_document_translates_what_readers_see(text, expected):
    assert translated(text, reverse) == expected


DIRECTION = Direction("en", "de")


@pytest.mark.parametrize(
    "text, expected, direction",
    [
        ('<html lang="en"><p>a b', '<html lang="de"><p>B A', DIRECTION),
        ("<html lang=en-US xml:lang='en'><p>a b", "<html lang=de xml:lang='de'><p>B A", DIRECTION),
        ('<html lang="en"><p>a b', '<html lang="pt-BR"><p>B A', Direction(None, "pt_BR")),
        ('<html lang="en"><p>a b', '<html lang="de"><p>B A', Direction("eng_Latn", "deu_Latn")),
        ('<html lang="en"><p>a b', '<html lang="zh-Hant"><p>B A', Direction("eng_Latn", "zho_Hant")),
        ('<html lang="en"><p>a b', '<html lang="en"><p>B A', Direction()),
        ('<html lang="fr"><p>a b<p lang=en>c d', '<html lang="de"><p>B A<p lang=de>D C', DIRECTION),
        (
            '<html lang="en"><p lang="fr" title="x">a b<p>c d',
            '<html lang="en"><p lang="fr" title="x">a b<p>D C',
            Direction(),
        ),
        (
            '<html lang="en"><p lang="en-GB">a b<p lang="eng_Latn">c',
            '<html lang="de"><p lang="de">B A<p lang="de">C',
            DIRECTION,
        ),
        ('<p>x <i lang="fr">a b</i> y</p>', '<p>X <i lang="fr">a b</i> Y</p>', DIRECTION),
        ('<p lang="fr">a b</p>', '<p lang="fr">B A</p>', Direction()),
        ('<p lang="">a b</p>', '<p lang="">B A</p>', DIRECTION),
    ],
)
def test_html_names_the_target_language_and_keeps_other_languages(text, expected, direction):
    assert translated(text, reverse, direction=direction) == expected


def test_xml_names_the_target_language_and_keeps_other_languages():
    text = "<p>a b</p><p xml:lang='fr'>c d</p><p>e <i xml:lang='fr'>f g</i> <b xml:lang='en'>h</b></p>"
    expected = "<p>B A</p><p xml:lang='fr'>c d</p><p>E <i xml:lang='fr'>f g</i> <b xml:lang='de'>H</b></p>"
    text, expected = f"<d xml:lang='en'>{text}</d>", f"<d xml:lang='de'>{expected}</d>"
    assert translated(text, reverse, "xml", direction=DIRECTION) == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_xml_changes_its_text_only(line_end):
    text = "\ufeff" + XML.replace("\n", line_end)
    assert translated(text, copy, "xml") == text
    found = translated(text, format="xml")
    assert found.casefold() == text.replace("<![CDATA[e < f]]>", "e &lt; f").replace("&#x2014;", "&#8212;").casefold()
    assert "&#8212; &n; &#8212;<x />" in found


def test_xml_names_its_encoding():
    text = "<?xml version='1.0'  encoding='latin1'?><d>a b</d>"
    assert translated(text, reverse, "xml") == "<?xml version='1.0'  encoding='UTF-8'?><d>B A</d>"


@pytest.mark.parametrize("format", ["html", "xml"])
def test_translations_are_written_in_characters_of_the_format(format):
    answer = "a\0b\x08 ]]> c > d"
    assert translated("<p>a</p>", lambda texts: [(answer, None)], format) == "<p>ab ]]&gt; c > d</p>"


def test_xml_has_no_end_of_a_section_in_text():
    text = "<d>a ]]&gt; b<![CDATA[ c > d]]> e</d>"
    assert translated(text, format="xml") == "<d>A ]]&gt; B C &gt; D E</d>"


def test_xml_finds_attributes_by_their_namespace():
    text = "<d xmlns:i='http://www.w3.org/2005/11/its' xmlns:its='x'>{}<p its:translate='no'>c d</p></d>"
    kept = "<p i:translate='no'>a b</p>"
    assert translated(text.format(kept), format="xml") == text.format(kept).replace("c d", "C D")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("code", ['<x ctype="lb"/>', '<ph equiv-text="&lt;br/&gt;" />', "<x id='1' />"])
def test_xliff_adds_its_targets_only(line_end, code):
    text = XLIFF.format(code).replace("\n", line_end)
    state = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    expected = text.replace(
        "</source>\n".replace("\n", line_end),
        f"</source>{line_end}    <target {state}>A MAN IS SLEEPING{code}TWO DOGS</target>{line_end}",
    ).replace("'new'/>", "'needs-review-translation' state-qualifier=\"mt-suggestion\">YES</target>")
    assert translated(text, format="xliff") == expected


def test_xliff_2_states_that_a_segment_is_translated():
    text = "<segment id='1' ><source>a b</source></segment>"
    text = f"<xliff version='2.0' srcLang='en' trgLang='de'><unit>{text}</unit></xliff>"
    expected = text.replace("'1'", '\'1\' state="translated" subState="vanilla-transformer:mt"').replace(
        "</source>", "</source><target>B A</target>"
    )
    assert translated(text, reverse, "xliff") == expected


@pytest.mark.parametrize(
    "format, text",
    [
        ("markdown", "\ufeff# A *b*\n\n- c\n  d\n\n```\ncode\n```\n"),
        ("srt", "\ufeff1\n00:00:01,000 --> 00:00:02,000\nA b\nc d\n\n2\n00:00:03,000 --> 00:00:04,000\nE\n"),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\nA b"),
    ],
)
def test_lines_end_as_before(format, text):
    expected = translated(text, format=format)
    assert expected.startswith(text[:2]) and expected.endswith(text[-1:].upper())
    assert translated(text.replace("\n", "\r\n"), format=format) == expected.replace("\n", "\r\n")


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
        ("xliff", XLIFF.format("<x ctype='lb'/>"), ["A man is sleeping", "Two dogs", "yes"]),
        ("xliff", XLIFF.format("<ph equiv='&lt;br/>' id='1'/>"), ["A man is sleeping", "Two dogs", "yes"]),
        ("xliff", XLIFF.format("<x id='1'/><x id='2'/>"), ["A man is sleeping Two dogs", "yes"]),
        ("xliff", XLIFF.format("<bpt id='1'>b</bpt>"), ["A man is sleepingTwo dogs", "yes"]),
        ("markdown", "sleeping<br/>Two dogs", ["sleeping", "Two dogs"]),
    ],
)
def test_breaks_and_codes_glue_no_words(format, text, seen):
    found = []

    def translate(texts):
        found.extend(texts)
        return shout(texts)

    result = translated(text, translate, format)
    assert found == seen
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
    kept = [word for word in text.replace("<d>", "").replace("</d>", "").split() if "<" in word]
    for translate in (shout, reverse, without_alignment(reverse)):
        found = translated(text, translate, format)
        assert all(word in found for word in kept), found
    assert translated(text, copy, format) == text


@pytest.mark.parametrize("form", ["{}.", "Ja, {}", "{} und Nein"])
def test_markup_within_a_word_that_stays_is_at_the_same_letters(form):
    text = "<p>The <u>F</u>ile v<b>ers</b>ion x</p>"
    found = translated(text, lambda texts: [(form.format(each), None) for each in texts])
    assert "<u>F</u>ile v<b>ers</b>ion" in found


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Two dogs<sup>1</sup> run", "RUN DOGS<sup>1</sup> TWO"),
        ("Two dogs<sup><a href=x>[1]</a></sup> run", "RUN DOGS<sup><a href=x>[1]</a></sup> TWO"),
        ("x log<sub>2</sub> y", "Y LOG<sub>2</sub> X"),
        ("on the 1<sup>st</sup> day", "DAY <sup>1ST</sup> THE ON"),
    ],
)
def test_marks_of_notes_stay_at_their_word(text, expected):
    assert translated(text, reverse) == expected


def test_html_that_is_nested_deeply_is_a_mistake():
    for text in ("<b>" * 300 + "a", "<div>" * 2000):
        with pytest.raises(ValueError, match="must be nested at most"):
            parse_document(text, "html")
