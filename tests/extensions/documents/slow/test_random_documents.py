"""10,000 random documents lose no markup."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.marked_up_texts import (
    check_html,
    check_markdown,
    check_xml,
    html_texts,
    markdown_texts,
    translations,
    xml_texts,
)

FORMATS = {
    "html": (html_texts, check_html, 4000),
    "xml": (xml_texts, check_xml, 3000),
    "markdown": (markdown_texts, check_markdown, 3000),
}


@pytest.mark.parametrize("format", FORMATS)
def test_translate_document_keeps_markup(format):
    texts, check, count = FORMATS[format]

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(texts, translations)
    def keeps_markup(text, translate):
        check(text, translate)

    keeps_markup()
