"""Misaligned pairs in several processes."""

import datasets
import pytest

from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.cleaning.misalignment import LEAST_PAIRS, find_misaligned


@pytest.mark.sweep
def test_find_misaligned_finds_the_same_in_several_processes():
    sources, targets = zip(*read_demo_corpus("train", LEAST_PAIRS), strict=True)
    texts = datasets.Dataset.from_dict({"source": sources, "target": targets[1:] + targets[:1]})
    assert find_misaligned(texts, 2).tolist() == find_misaligned(texts).tolist()
