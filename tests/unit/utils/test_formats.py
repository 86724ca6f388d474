"""The table of formats agrees with the extension that reads them, with `setup.py` and with the
documentation.
"""

import ast
import re
from pathlib import Path

import pytest

from vanilla_transformer.decoding.protection.blocks import Document
from vanilla_transformer.extensions.documents.translation import find_reader
from vanilla_transformer.files.formats import (
    DOCUMENT_FORMATS,
    FORMAT_OF_ENDING,
    FORMATS,
    corpus_endings,
)

ROOT = Path(__file__).parents[3]


def names_in_code(text):
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("format", DOCUMENT_FORMATS)
def test_each_format_of_documents_has_a_reader(format):
    assert issubclass(find_reader(FORMATS[format]), Document)


def test_no_two_formats_share_an_ending():
    assert len(FORMAT_OF_ENDING) == sum(len(row.endings) for row in FORMATS.values())


def test_extras_of_formats_are_extras_of_the_package():
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(setup)):
        if isinstance(node, ast.keyword) and node.arg == "extras_require":
            extras = {key.value for key in node.value.keys}
    assert {row.extra for row in FORMATS.values()} - {""} <= extras


def test_table_of_the_documentation_has_all_formats_of_documents():
    page = (ROOT / "docs" / "documents.md").read_text(encoding="utf-8")
    table = page[page.index("| `--format` |") :].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    names = names_in_code(" ".join(cells))
    documented = {name for name in names if not name.startswith(".")}
    assert documented == {name for name in DOCUMENT_FORMATS if FORMATS[name].endings}
    assert {name for name in names if name.startswith(".")} <= FORMAT_OF_ENDING.keys()


@pytest.mark.parametrize("corpus", ["one file", "two files"])
def test_table_of_corpora_has_all_their_endings(corpus):
    page = (ROOT / "docs" / "clean_a_corpus.md").read_text(encoding="utf-8")
    table = page[page.index("## Formats") : page.index("## Rules")]
    assert {*corpus_endings(corpus)} <= {*names_in_code(table)}
