"""No document loses markup or placeholders. `tests/slow` draws more examples."""

import pytest

from tests.marked_up_texts import CHECKS, check_random_texts


@pytest.mark.parametrize("format", CHECKS)
def test_translate_document_keeps_markup(format):
    check_random_texts(format, 25)
