"""A search that repeats no n-gram: equal to a textbook search."""

import pytest

from tests.search_cases import search_without_repeated_ngrams
from tests.sweeps import rare


@pytest.mark.parametrize("seed", [rare(0), 1, 4])  # there are more among the slow tests
def test_engine_repeats_no_ngram_as_a_textbook_does(seed):
    search_without_repeated_ngrams(seed)
