"""GNU gettext compiles translated PO files, with all its checks."""

import re
import shutil
import subprocess
from collections import Counter

import pytest

from tests.catalogs import FORMS, HEADER, PLURALS, PO, translate
from tests.document_translation import translate_document
from vanilla_transformer.data.readers.gettext_catalogs import read_catalog, strings_of
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter

FIELD = re.compile(r"%\W*(?:\(\w+\)|\d+\$)?\w|%|\{[^{}]*\}")
TEMPLATE = HEADER.format("", "").replace("UTF-8", "CHARSET") + 'msgid "ä"\nmsgstr ""\n'


# Messages whose translation by `invent` gettext refuses.
BROKEN = PO + "".join(
    f'\n#, {flag}-format\nmsgid "{text}"\nmsgstr ""\n'
    for flag, text in [
        ("c", "%s has no idea who she is."),
        ("c", "It saves 50% of it."),
        ("c", "Copied %2$s over %1$s.\\n"),
        ("python", "%(n)d of the doors are open. Go in."),
        ("python", "%s column(s)"),
        ("python-brace", "{name} is {0!r}."),
    ]
)


def invent(texts):
    """Return each text with fields, or parts of these, that it lacks, as a small model writes
    it.
    """
    wrong = ["% hat {text} %", "{text} %d", "{text}    {{x}}", "%n {text}"]
    return [(wrong[len(text) % 4].format(text=text.upper()), None) for text in texts]


def check(text):
    """Return what msgfmt says about a PO file."""
    command = ["msgfmt", "--check", "--use-fuzzy", "--output-file", "/dev/null", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")
    return result.stderr


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
@pytest.mark.parametrize(
    ("text", "language"),
    [(PO, "de"), (TEMPLATE, "de"), *((PLURALS, language) for language in FORMS)],
)
def test_msgfmt_compiles_a_translation(text, language):
    assert check(translate(text, "po", language)) == ""


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
def test_msgfmt_compiles_translations_with_mistakes():
    assert check(translate_document(BROKEN, "po", invent, AbbreviationSplitter())) == ""


def test_messages_have_the_fields_of_their_sources_whatever_a_model_writes():
    translated = translate_document(BROKEN, "po", invent, AbbreviationSplitter())
    units = [unit for unit in read_catalog(translated, "po").units if unit.target]
    for unit in units:
        for source, target in zip(strings_of(unit.source), strings_of(unit.target), strict=True):
            assert Counter(FIELD.findall(target)) == Counter(FIELD.findall(source))
    assert len(units) > 1
