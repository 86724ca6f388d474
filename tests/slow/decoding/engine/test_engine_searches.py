"""More random cases of the searches in the engine."""

import pytest

from tests.search_cases import SEARCHES


@pytest.mark.parametrize("first", range(5, 45, 10))
@pytest.mark.parametrize("search", SEARCHES)
def test_engine_searches_as_a_textbook_does_in_more_cases(search, first):
    for seed in range(first, first + 10):
        search(seed)
