"""YAML of users: refused keys and aliases, and its growth."""

import time

import pytest

from vanilla_transformer.user_input.yaml_values import load_yaml


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "the key 'a' is there twice"),
        ("1: 1\ntrue: 2", "the key True is there twice"),  # which are one key of a mapping
        ("? [a]\n: 1", "unhashable key"),
        ("a: &a 1\nb: *a", "aliases are not supported"),
    ],
)
def test_load_yaml_refuses_keys_and_aliases(text, words):
    with pytest.raises(ValueError, match=words):
        load_yaml(text)


def test_load_yaml_grows_with_the_number_of_keys():
    """The fastest of three turns counts, since other work on the machine slows some."""
    times = []
    for count in (2_000, 8_000):
        text = "".join(f"key{number}: 1\n" for number in range(count))
        turns = []
        for _ in range(3):
            start = time.process_time()
            load_yaml(text)
            turns.append(time.process_time() - start)
        times.append(min(turns))
    assert times[1] < 6 * times[0]
