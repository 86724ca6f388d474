"""The syntax of systems of documentation and of subtitles stays, and the text in it is
translated.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.document_translation import by_word, copy, translate_document
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.files.formats import DOCUMENT_ENDINGS

CASES = Path(__file__).parents[1] / "cases"
FILES = sorted([*CASES.glob("md-*.md"), *CASES.glob("srt-*.srt")])
SYSTEMS = sorted(path for path in (CASES / "systems").glob("*.md") if ".upper" not in path.name)


def translate(path, model):
    return translate_document(path.read_text(), DOCUMENT_ENDINGS[path.suffix], model, split_simply)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_document_has_what_the_authority_of_a_case_expects(path):
    expected = re.search(
        r"must contain: (\[.*\])", path.with_name(f"{path.name}.expect.txt").read_text()
    )
    translated = translate(path, by_word(str.upper))
    assert [part for part in ast.literal_eval(expected[1]) if part not in translated] == []
    assert translate(path, copy) == path.read_text()


@pytest.mark.parametrize("path", SYSTEMS, ids=lambda path: path.stem)
def test_markdown_keeps_the_syntax_of_a_system(path):
    assert translate(path, by_word(str.upper)) == path.with_suffix(".upper.md").read_text()
    assert translate(path, copy) == path.read_text()
