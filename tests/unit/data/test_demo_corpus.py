"""The demo corpus as pairs and as files."""

import os
from pathlib import Path

import pytest

from tools.demo_corpus import SPLIT_SIZES as GENERATED_SIZES
from vanilla_transformer.data import demo_corpus
from vanilla_transformer.data.demo_corpus import (
    SPLIT_SIZES,
    read_demo_alignments,
    read_demo_corpus,
    write_demo_corpus,
)

NAMES = [f"{split}.{kind}" for split in ("test", "train", "validation") for kind in ("align", "de", "en")]


@pytest.mark.parametrize("split", SPLIT_SIZES)
def test_read_demo_corpus_returns_distinct_pairs(split):
    pairs = read_demo_corpus(split, SPLIT_SIZES[split])
    assert len({pair.source for pair in pairs}) == len(pairs) == SPLIT_SIZES[split]
    assert read_demo_corpus(split, 7) == pairs[:7]


def test_read_demo_corpus_has_disjoint_splits():
    train, validation, test = ({pair.source for pair in read_demo_corpus(*split)} for split in SPLIT_SIZES.items())
    assert not train & validation and not train & test and not validation & test


def test_read_demo_corpus_refuses_unknown_splits_and_sizes():
    with pytest.raises(ValueError, match="has the splits train, validation, test, got 'dev'"):
        read_demo_corpus("dev", 1)
    for count in (0, 2_001):
        with pytest.raises(ValueError, match=f"test pairs of the demo corpus must be from 1 to 2000, got {count}"):
            read_demo_corpus("test", count)


@pytest.mark.parametrize("split", SPLIT_SIZES)
def test_read_demo_alignments_links_words_of_every_pair(split):
    pairs = read_demo_corpus(split, SPLIT_SIZES[split])
    alignments = read_demo_alignments(split, SPLIT_SIZES[split])
    assert read_demo_alignments(split, 7) == alignments[:7]
    linked = [0, 0]
    for pair, alignment in zip(pairs, alignments, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in alignment.split()]
        assert sorted(set(links)) == links
        for side, text in enumerate(pair):
            words = {link[side] for link in links}
            assert words <= set(range(len(text.split())))
            linked[side] += len(words)
    for side, count in enumerate(linked):
        assert count > 0.97 * sum(len(pair[side].split()) for pair in pairs)


def test_read_demo_alignments_refuses_unknown_splits_and_sizes():
    with pytest.raises(ValueError, match="has the splits train, validation, test, got 'dev'"):
        read_demo_alignments("dev", 1)
    with pytest.raises(ValueError, match="test pairs of the demo corpus must be from 1 to 2000, got 0"):
        read_demo_alignments("test", 0)


def test_write_demo_corpus_writes_the_pairs_line_by_line(tmp_path):
    paths = write_demo_corpus(tmp_path / "new" / "folder", train=200, validation=20, test=30)
    assert sorted(paths) == sorted(os.listdir(tmp_path / "new" / "folder")) == NAMES
    for split, count in (("train", 200), ("validation", 20), ("test", 30)):
        pairs = read_demo_corpus(split, count)
        assert paths[f"{split}.en"].read_bytes().decode() == "".join(f"{pair.source}\n" for pair in pairs)
        alignments = read_demo_alignments(split, count)
        assert paths[f"{split}.align"].read_text(encoding="utf-8") == "".join(f"{line}\n" for line in alignments)
        assert paths[f"{split}.de"].read_bytes().decode() == "".join(f"{pair.target}\n" for pair in pairs)


def test_write_demo_corpus_replaces_its_files(tmp_path):
    write_demo_corpus(tmp_path, train=50, validation=5, test=5)
    paths = write_demo_corpus(tmp_path, train=5, validation=5, test=5)
    assert len(paths["train.en"].read_text(encoding="utf-8").splitlines()) == 5


def test_write_demo_corpus_writes_nothing_if_it_refuses_a_count(tmp_path):
    with pytest.raises(ValueError, match="got 0"):
        write_demo_corpus(tmp_path / "corpus", train=5, validation=5, test=0)
    assert not (tmp_path / "corpus").exists()


def test_demo_corpus_ships_at_most_one_megabyte():
    assert GENERATED_SIZES == SPLIT_SIZES
    assert sum(path.stat().st_size for path in Path(demo_corpus.__file__).with_suffix("").iterdir()) <= 1_000_000
