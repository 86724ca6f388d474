"""The sample of a text on which a vocabulary is trained."""

from functools import partial
from hashlib import blake2b

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.texts import sample_sentences


def cut(sentences, size):
    """Return sentences in batches."""
    return [sentences[first : first + size] for first in range(0, len(sentences), size)]


def hash_of(text):
    return int(np.frombuffer(blake2b(text.encode(), digest_size=8).digest(), np.uint64)[0])


@given(st.lists(st.text("ab", max_size=3), min_size=1), st.integers(1, 9), st.data())
def test_sample_has_the_lowest_hashes_in_order(sentences, size, data):
    most = data.draw(st.integers(1, len(sentences)))
    limit = sorted(map(hash_of, sentences))[most - 1]
    expected = [text for text in sentences if hash_of(text) <= limit]
    assert [*sample_sentences(partial(cut, sentences, size), most)] == expected


def test_sample_is_spread_over_the_text():
    sentences = [f"Sentence {number}." for number in range(3000)]
    sampled = [*sample_sentences(partial(cut, sentences, 100), 600)]
    assert len(sampled) == 600
    of_thirds = [len({*sampled} & {*third}) for third in cut(sentences, 1000)]
    assert min(of_thirds) > 150
