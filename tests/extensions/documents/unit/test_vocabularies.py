"""Files of vocabularies are translated where their specifications say so, and nowhere else.

`cases/NAME.expected` is the translation of `cases/NAME` into upper case. The authorities: sections
6 and 8 of ITS 2.0, `translate` and `lang` of the HTML standard, the rules for DocBook of "Best
Practices for XML Internationalization", the recommendations for translators of DITA 1.3, the string
resources of Android, and the content module of RSS.
"""

from pathlib import Path

import pytest

from tests.document_translation import copy, copy_kept, shout, translate_document
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.extensions.documents import parse_document
from vanilla_transformer.extensions.documents.html_format import HtmlDocument
from vanilla_transformer.text.languages import Direction

CASES = Path(__file__).parents[1] / "cases"
FORMATS = {".html": "html", ".xhtml": "html", ".xlf": "xliff", ".xml": "xml"}
NAMES = sorted(path.name for path in CASES.iterdir() if path.suffix in FORMATS)


def translated(name, translate):
    text = (CASES / name).read_text(encoding="utf-8")
    return translate_document(
        text,
        FORMATS[Path(name).suffix],
        translate,
        AbbreviationSplitter(),
        direction=Direction("en", "de"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_files_are_translated_as_their_vocabularies_say(name):
    expected = CASES / f"{name}.expected"
    assert translated(name, copy_kept(shout)) == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(".xlf")])
def test_a_copied_file_is_the_same_but_for_its_language(name):
    text = (CASES / name).read_text(encoding="utf-8")
    assert translated(name, copy) == text.replace('lang="en"', 'lang="de"')


def texts(text, format="xml"):
    return [block.text for block in parse_document(text, format).blocks]


@pytest.mark.parametrize(
    "text, seen",
    [
        # A footnote is no part of a word, and a list is none of its paragraph.
        (
            "<p>the dog<fn>a small animal.</fn> runs fast.</p>",
            ["a small animal.", "the dog runs fast."],
        ),
        (
            "<para>one:<list><item>a dog</item><item>a cat</item></list></para>",
            ["one:", "a dog", "a cat"],
        ),
        # Elsewhere, elements of this name stand beside each other; these are on one line of text.
        ("<d><p>a <b>red</b> dog</p><p><b>See</b> <i>it</i></p></d>", ["a red dog", "See", "it"]),
        ("<d><p>a <n>b</n></p>\n<n>c</n>\n<n>d</n></d>", ["a ", "b", "c", "d"]),
        # Names of menus are words.
        ("<para><guimenu>File</guimenu><guimenuitem>Open</guimenuitem></para>", ["File Open"]),
    ],
)
def test_elements_that_have_text_elsewhere_are_blocks(text, seen):
    assert [text.strip() for text in texts(text)] == [text.strip() for text in seen]


def test_documents_in_sections_have_the_last_blocks():
    document = parse_document(
        "<rss><title><![CDATA[<b>a</b>]]></title><title>b</title></rss>", "xml"
    )
    assert [block.text for block in document.blocks] == ["b", "a"]
    assert isinstance(document.parts[0][-1], HtmlDocument)
    assert document.render(document.blocks) == document.text
    assert texts("<rss><title><![CDATA[<b>a]]]]><![CDATA[></b>]]></title></rss>") == []
