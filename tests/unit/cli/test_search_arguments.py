"""The flags of the search become arguments of the pipeline."""

import pytest

from vanilla_transformer.cli.search_arguments import SearchArguments, check_search, search_settings


def test_search_settings_leave_the_checkpoint_to_decide():
    assert search_settings(SearchArguments()) == {}


def test_search_settings_sample_with_one_beam_unless_another_number_is_given():
    assert search_settings(SearchArguments(do_sample=True)) == {"do_sample": True, "num_beams": 1}
    assert search_settings(SearchArguments(do_sample=True, num_beams=2))["num_beams"] == 2


def test_check_search_refuses_an_infinite_length_penalty():
    with pytest.raises(ValueError, match="`length_penalty` must be a finite number, got inf"):
        check_search(SearchArguments(length_penalty=float("inf")))
