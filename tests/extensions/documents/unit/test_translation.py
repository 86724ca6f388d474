"""Documents keep their markup, and what must survive."""

from dataclasses import replace

import pytest

from tests.fake_translation import copy_kept, reverse, shout, without_alignment
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.extensions.documents import parse_document, read_document, translate_document
from vanilla_transformer.text.protection import find_masks, find_protected

SPLIT = AbbreviationSplitter()
XLIFF = """<xliff version="1.2"><file source-language="en" target-language="de" original="x"><body>
<trans-unit id="1">
  <source>Click <g id="1">the button</g> now<x id="2"/>.</source>
</trans-unit>
<trans-unit id="2" translate="no"><source>no</source></trans-unit>
<trans-unit id="3"><source>yes</source><target>ja</target></trans-unit></body></file></xliff>"""


@pytest.mark.parametrize(
    "format, text, expected",
    [
        ("html", "<p>A <b>very <i>red</i></b> house.</p>", "<p>HOUSE. <b><i>RED</i> VERY</b> A</p>"),
        ("html", "<p>One.<br>Two <img src='a b'> me</p>", "<p>ONE.<br> <img src='a b'> ME TWO</p>"),
        ("html", "<p>Run <code>a b</code> &amp; go</p>", "<p>RUN <code>a b</code> GO &amp;</p>"),
        ("html", "<script>a < b</script><pre>x y</pre>", "<script>a < b</script><pre>x y</pre>"),
        ("html", "<td>a b</td>", "<td>B A</td>"),
        ("html", "<div><button>a b</button></div>", "<div><button>B A</button></div>"),
        ("html", "<select><option>a b</option></select>", "<select><option>B A</option></select>"),
        ("html", "<noscript><p>a b</p></noscript>", "<noscript><p>B A</p></noscript>"),
        (
            "xml",
            "<d><p>a <b>b</b></p><q translate='no'>n o</q></d>",
            "<d><p><b>B</b> A</p><q translate='no'>n o</q></d>",
        ),
        ("markdown", "# A *b*\n\n- c `d e`\n  f\n", "# *B* A\n\n- C `d e` F\n"),
        ("html", "<p><b>&nbsp;<br></b><b> a </b></p>", "<p><b><br></b>&nbsp; <b>A</b> </p>"),
        ("markdown", "   <u> `a * b` </u>\nd", "   <u>`a * b`</u> D"),
        ("markdown", "---\na: b\n---\n| a b | **c** |\n|--|--|\n", "---\na: b\n---\n| B A | **C** |\n|--|--|\n"),
        (
            "srt",
            "1\n00:00:01,000 --> 00:00:02,000\n- A <i>b</i>\n",
            "1\n00:00:01,000 --> 00:00:02,000\n- <i>B</i> A\n",
        ),
    ],
)
def test_translate_document_moves_markup_with_words(format, text, expected):
    assert translate_document(text, format, reverse, SPLIT) == expected


@pytest.mark.parametrize(
    "lines",
    [
        '<font color="#ff0000" size="3">Aa bb</font>\ncc dd',
        "{\\an8} Aa bb cc\n<b><i>dd</i></b> ee ff",
        "Aa bb\N{NO-BREAK SPACE}cc\ndd <b> ee ff",
    ],
)
def test_render_wraps_subtitles_by_the_text_between_tags(lines):
    text = f"1\n00:00:01,000 --> 00:00:02,000\n{lines}\n\n"
    document = parse_document(text, "srt")
    assert document.render(document.blocks) == text


def test_translate_document_writes_targets_of_open_xliff_segments():
    translated = translate_document(XLIFF, "xliff", reverse, SPLIT)
    assert 'mt-suggestion">NOW.<x id="2"/> <g id="1">BUTTON THE</g> CLICK</target>' in translated
    assert "<source>no</source></trans-unit>" in translated and "<target>ja</target>" in translated


@pytest.mark.parametrize(
    "format, text, expected",
    [
        ("html", "<p>Click <img src='i'> here.</p>", "<p>CLICK <img src='i'> HERE.</p>"),
        ("html", "<p>Click <b><img src='i'></b> <i>on it</i></p>", "<p>CLICK <b><img src='i'></b> <i>ON IT</i></p>"),
        ("html", "<p>At <img src='i'> <img src='j'></p>", "<p>AT <img src='i'> <img src='j'></p>"),
        ("xml", "<p>See <x/> (<y/> below) <z/>.</p>", "<p>SEE <x/> (<y/> BELOW) <z/>.</p>"),
        ("xml", "<p><x/> <y/> of <z/> done</p>", "<p><x/> <y/> OF <z/> DONE</p>"),
        ("xml", '<p xml:space="preserve">Go <x/> on</p>', '<p xml:space="preserve">GO <x/> ON</p>'),
        ("markdown", "Click ![i](j) *here* and <u></u> now", "CLICK ![i](j) *HERE* AND <u></u> NOW"),
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
    assert document.render([replace(block, text=block.text.upper())]) == "CLICK <u>HERE</u>—NOW"


def test_translate_document_keeps_space_beside_codes_of_xliff():
    source = '<x id="1"/> <x id="2"/> of <x id="3"/> files.<x id="4"/> Go to <x id="5"/> <x id="6"/>'
    text = XLIFF.replace('Click <g id="1">the button</g> now<x id="2"/>.', source)
    translated = translate_document(text, "xliff", shout, SPLIT)
    expected = source.replace("of", "OF").replace("files", "FILES").replace("Go to", "GO TO")
    assert f'mt-suggestion">{expected}</target>' in translated


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A note[^1] here.\n\n[^1]: The text.\n", "A NOTE[^1] HERE.\n\n[^1]: THE TEXT.\n"),
        ("A[^a] b.\n\n[^a]: Note.\n    More.\n\n    End.\n", "A[^a] B.\n\n[^a]: NOTE. MORE.\n\n    END.\n"),
        ("| a[^1] |\n|---|\n| [^2] b |\n", "| A[^1] |\n|---|\n| [^2] B |\n"),
        ("> [!WARNING]\n> Do not\n> touch.\n", "> [!WARNING]\n> DO NOT TOUCH.\n"),
        ("- > [!Note]- a\n  > b\n- > [!Tip]\n  > # c\n", "- > [!Note]- A\n  > B\n- > [!Tip]\n  > # C\n"),
        ("Not [!NOTE] [^no note]", "NOT [!NOTE] [^NO NOTE]"),
    ],
)
def test_translate_document_keeps_footnotes_and_alerts_of_markdown(text, expected):
    assert translate_document(text, "markdown", shout, SPLIT) == expected


def test_translate_document_puts_text_back_that_a_model_breaks():
    text = "<p>Mail {name} <b>to me@mail.example</b> %s by https://a.example/x 🙂</p>"
    for translate in (shout, reverse, without_alignment(reverse)):
        translated = translate_document(text, "html", translate, SPLIT)
        assert translated == "<p>MAIL {name} <b>TO me@mail.example</b> %s BY https://a.example/x 🙂</p>"


def test_translate_document_translates_branches_of_icu_messages():
    text = "<p>You <b>have</b> {n, plural, one {# file} other {# files by {x}}}.</p><p>A</p>"
    translated = translate_document(text, "html", copy_kept(shout), SPLIT)
    assert "{n, plural, one {# FILE} other {# FILES BY {x}}}." in translated and translated.endswith("<p>A</p>")
    fixed = "<p>{n, plural, one {# <code>f</code>} other {# files}} left.</p>"
    assert translate_document(fixed, "html", shout, SPLIT) == fixed.replace("left", "LEFT")


def test_translate_document_masks_text_by_tokens_that_the_model_copies():
    seen = []

    def translate(texts):
        seen.extend(texts)
        return [(text.replace("See ", "SIEHE "), None) for text in texts]

    translated = translate_document("<p>See {a} {b}</p>", "html", translate, SPLIT, masks=["<ph0>", "<ph1>"])
    assert seen == ["See <ph0> <ph1>"] and translated == "<p>SIEHE {a} {b}</p>"


def test_translate_document_translates_again_under_constraints_if_text_is_lost():
    seen = []

    def constrain(texts, phrases):
        seen.extend(zip(texts, phrases, strict=True))
        return [
            ("DRÜCK <ph1> <kbd>", None) if "Press" in text else ("LOST", None) if "x" in text else None
            for text in texts
        ]

    text = "<p>Press <kbd>B c</kbd> {a}</p><p>x {b} y</p><p>no {c} z</p><p>fine</p>"
    given = {"splitter": SPLIT, "masks": ["<kbd>", "<ph1>"], "constrain": constrain}
    translated = translate_document(text, "html", without_alignment(shout), **given)
    assert seen == [("Press <kbd> <ph1>", ["<kbd>", "<ph1>"]), ("x <kbd> y", ["<kbd>"]), ("no <kbd> z", ["<kbd>"])]
    assert translated == "<p>DRÜCK {a} <kbd>B c</kbd></p><p>X {b} Y</p><p>NO {c} Z</p><p>FINE</p>"


def test_translate_document_keeps_entities_of_xml_and_expands_none():
    bomb = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><d><p>x &b; y</p></d>'
    assert translate_document(bomb, "xml", shout, SPLIT).endswith("<d><p>X &b; Y</p></d>")
    outside = '<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/hostname">]><d><p>x &a; y</p></d>'
    assert translate_document(outside, "xml", shout, SPLIT).endswith("<d><p>X &a; Y</p></d>")


@pytest.mark.parametrize(
    "format, text, message",
    [
        ("xml", "<a><b></a>", "must be well-formed XML"),
        ("xliff", "<a/>", "must have the root element <xliff>, got <a>"),
        ("xliff", "<xliff version='2.0'/>", "has no attribute `trgLang`"),
        ("srt", "nothing", "must be SubRip subtitles"),
        ("pdf", "", "`format` must be one of html, xml, markdown, srt, xliff, wrapped, got 'pdf'"),
    ],
)
def test_translate_document_names_the_mistake(format, text, message):
    with pytest.raises(ValueError, match="^[^\n]*$") as caught:
        translate_document(text, format, shout, SPLIT)
    assert message in str(caught.value)


def test_read_document_names_a_closed_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(OSError, match="must be open, but it is closed"):
        read_document(None)


def test_find_protected_finds_what_models_break():
    text = "{a} %s $1 %(b)s ${c} a@b.cd http://x.yz/a?b. 1,000.5 2024-05-06 12:30 12345 🙂 👩‍💻"
    found = [text[start:end] for start, end in find_protected(text)]
    assert found == text.replace("b. ", "b ").split()
    assert find_protected("2 men, 10 dogs. 100%? No.") == [(16, 19)]


def test_find_masks_takes_tokens_that_appear_in_text():
    class Tokenizer:
        all_special_tokens = ("<ph1>",)

        def get_added_vocab(self):
            return {"<ph2>": 9, "<ph1>": 8, "<ph0>": 7, "<s>": 1}

    assert find_masks(Tokenizer()) == ["<ph0>", "<ph2>"]
