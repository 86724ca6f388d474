"""More random cases of the searches in the engine."""

import pytest

from tests.search_cases import search_without_repeated_ngrams


@pytest.mark.parametrize("first", range(5, 45, 10))
def test_engine_repeats_no_ngram_as_a_textbook_does_in_more_cases(first):
    for seed in range(first, first + 10):
        search_without_repeated_ngrams(seed)
