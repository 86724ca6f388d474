"""Tags, entities and escapes in plain text are markup: the model reads words, and the text is
written as it was.
"""

import time

import pytest

from tests.document_translation import copy_kept, reverse, shout, translate_document
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.inline_markup import parse_markup
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.translations import Link, Translation


def search(text, model, count=1, marks=()):
    """Return the translations of a text, and what the model read."""
    read = []

    def decode(sentences, options, report):
        texts = [sentence.text for sentence in sentences]
        read.extend(texts)
        rows = []
        for answer, links in model(texts):
            alignment = [Link(*link) for link in links]
            rows.append([Translation(answer, alignment=alignment)] * count)
        return rows

    options = TranslationOptions(protect=True, num_return_sequences=count)
    protected_search = ProtectedSearch(decode, options, marks=marks)
    (row,) = protected_search([Sentence(text, "", [1])], lambda done: None)
    return [translation.text for translation in row], read


CASES = [
    (
        "A &lt;strong&gt;woman&lt;/strong&gt; runs",
        ["A woman runs"],
        "RUNS &lt;strong&gt;WOMAN&lt;/strong&gt; A",
    ),
    ("<b>a <i>big</i></b> dog", ["a big dog"], "DOG <b><i>BIG</i> A</b>"),
    ("It&#39;s caf&eacute; &amp; x", ["It's café & x"], "X &amp; CAFÉ IT&#39;S"),
    ("say &amp;quot;hi&amp;quot;", ['say "hi"'], "&amp;quot;HI&amp;quot; SAY"),
    (r"first line\nsecond line", ["first line", "second line"], r"LINE FIRST\nLINE SECOND"),
    (
        r"say \"hi\" now\t\u0020it\u0027s on\N",
        ['say "hi" now', "it's on"],
        r"NOW \"HI\" SAY\t\u0020ON IT\u0027S\N",
    ),
    ("<p>one</p><p>a <b>dog</b></p>", ["one", "a dog"], "<p>ONE</p><p><b>DOG</b> A</p>"),
    ("a<br/>b c", ["a", "b c"], "A<br/>C B"),
    (
        "<b>see</b> <i>https://a.b/x?y=1&amp;z=2</i>",
        None,
        "<i>https://a.b/x?y=1&amp;z=2</i> <b>SEE</b>",
    ),
    ("&quot;a&quot; <b>b</b> &#x110000; c", None, "C &#x110000; <b>B</b> &quot;A&quot;"),
    ("Hello <name> <b>you</b>", ["Hello <name> you"], "<b>YOU</b> <name> HELLO"),
]


@pytest.mark.parametrize(("text", "read", "expected"), CASES)
def test_markup_in_plain_text_is_written_as_it_was(text, read, expected):
    assert parse_markup(text)
    translations, texts = search(text, copy_kept(reverse), count=2)
    assert translations == [expected] * 2
    assert read is None or texts == read


OTHER_SIGNS = [r"C:\new\table is a dog", r"\textbf{dog}", "a < b and c > d", "I <3 you"]
OTHER_SIGNS += ["A <b>dog", "R&D; x &nbsp; y", r"\\no"]


@pytest.mark.parametrize("text", OTHER_SIGNS)
def test_other_signs_are_no_markup(text):
    assert parse_markup(text) is None


def test_text_that_has_a_character_in_both_forms_keeps_the_entity():
    assert search("Tom & Jerry &amp; Co", copy_kept(shout))[0] == ["TOM & JERRY &amp; CO"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see <style>p { a: b. }</style>it", "SEE <style>p { a: b. }</style>IT"),
        ("<!-- no --><b>see</b>", "<!-- no --><b>SEE</b>"),
        ("do <code>git pull</code> <b>now</b>", "DO <code>git pull</code> <b>NOW</b>"),
    ],
)
def test_what_no_reader_translates_stays(text, expected):
    assert search(text, copy_kept(shout))[0] == [expected]


def test_a_copy_is_written_as_the_source():
    text = "&quot;a&#34; <b>b</b>"
    assert search(text, lambda texts: [(text, []) for text in texts])[0] == [text]


def test_a_reference_of_thousands_of_digits_is_no_markup():
    assert parse_markup(f"a &#{'9' * 4400}; b") is None


def test_the_models_own_tokens_are_no_markup():
    assert parse_markup("A <x>dog</x> runs", marks={"<x>", "</x>"}) is None


@pytest.mark.parametrize("text", [r"\n\t", "<br/> - <br/>"])
def test_text_without_words_between_breaks_is_copied(text):
    assert search(text, reverse) == ([text], [])


WITHOUT_PARAGRAPHS = [case for case in CASES if "<p>" not in case[0]]


@pytest.mark.parametrize(("text", "read", "expected"), WITHOUT_PARAGRAPHS)
def test_documents_have_the_markup_of_plain_text(text, read, expected):
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    document = translate_document(f"<p>{escaped}</p>", "xml", copy_kept(reverse), split_simply)
    shown = document.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert shown[3:-4] == expected


REPEATED = [r"\n", "<b>", "</b>", "&amp;", "a:\\n", "&lt;a ", "<!--", "<style>", "<code>"]


@pytest.mark.parametrize("text", REPEATED)
def test_markup_is_read_in_linear_time(text):
    started = time.process_time()
    parse_markup(text * 20_000)
    assert time.process_time() - started < 5  # 0.2 s


def test_parse_markup_keeps_reference_of_no_character():
    translations, _ = search("a &#1; <b>b</b>", shout)
    assert translations == ["A &#1; <b>B</b>"]
