"""No document loses markup or placeholders. `tests/slow` draws more examples."""

from hypothesis import given, settings

from tests.marked_up_texts import (
    check_html,
    check_markdown,
    check_xml,
    html_texts,
    markdown_texts,
    translations,
    xml_texts,
)

FEW = settings(max_examples=25)


@FEW
@given(html_texts, translations)
def test_translate_document_keeps_html(text, translate):
    check_html(text, translate)


@FEW
@given(xml_texts, translations)
def test_translate_document_keeps_xml(text, translate):
    check_xml(text, translate)


@FEW
@given(markdown_texts, translations)
def test_translate_document_keeps_markdown(text, translate):
    check_markdown(text, translate)
