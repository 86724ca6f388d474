"""10,000 random documents lose no markup."""

import pytest

from tests.marked_up_texts import CHECKS, check_random_texts


@pytest.mark.parametrize("format", CHECKS)
def test_translate_document_keeps_markup(format):
    check_random_texts(format, 4000 if format == "html" else 3000)
