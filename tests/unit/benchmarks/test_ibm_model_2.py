"""IBM model 2 of nltk in both directions, and their intersection."""

import random

import pytest

pytest.importorskip("nltk")

from benchmarks.ibm_model_2 import align_both_ways, intersect
from vanilla_transformer.data.readers import SentencePair


def test_align_both_ways_links_source_words_to_target_words():
    draw, words = random.Random(0), {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}
    sources = [draw.sample([*words], 3) for _ in range(60)]
    pairs = [
        SentencePair(" ".join(each), " ".join([*(words[w] for w in each[1:]), words[each[0]]])) for each in sources
    ]
    forward, backward = align_both_ways(pairs, 5, 20)
    assert intersect(forward, backward) == [{(0, 2), (1, 0), (2, 1)}] * 20
