"""The grammar yields the demo corpus that the package ships, and as many pairs as it declares."""

from pathlib import Path

import pytest

from tools.demo_corpus import SMALLEST_GRAMMAR, SPLIT_SIZES, SPLITS, generate_pairs, write_split
from vanilla_transformer.data import demo_corpus

SHIPPED = Path(demo_corpus.__file__).with_suffix("")


@pytest.mark.parametrize("split", SPLITS)
def test_write_split_yields_the_shipped_bytes(split, tmp_path):
    paths = write_split(tmp_path, split, SPLIT_SIZES[split])
    assert [path.name for path in paths] == [f"{split}.tsv.gz", f"{split}.align.gz"]
    for path in paths:
        assert path.read_bytes() == (SHIPPED / path.name).read_bytes()


@pytest.mark.parametrize("split", SPLITS)
def test_generate_pairs_yields_as_many_distinct_pairs_as_declared(split):
    count = SMALLEST_GRAMMAR[split]
    assert len({pair.source for pair in generate_pairs(split, count, seed=7)}) == count
