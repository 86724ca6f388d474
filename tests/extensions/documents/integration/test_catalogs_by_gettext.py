"""GNU gettext compiles translated PO files, with all its checks."""

import shutil
import subprocess

import pytest

from tests.catalogs import FORMS, HEADER, PLURALS, PO, translate

TEMPLATE = HEADER.format("", "").replace("UTF-8", "CHARSET") + 'msgid "ä"\nmsgstr ""\n'


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
@pytest.mark.parametrize(
    ("text", "language"),
    [(PO, "de"), (TEMPLATE, "de"), *((PLURALS, language) for language in FORMS)],
)
def test_msgfmt_compiles_a_translation(text, language):
    command = ["msgfmt", "--check", "--use-fuzzy", "--output-file", "/dev/null", "-"]
    translated = translate(text, "po", language)
    result = subprocess.run(
        command, input=translated, capture_output=True, text=True, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
