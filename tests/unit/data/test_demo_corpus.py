"""The demo corpus as pairs and as files."""

import os

import pytest

from tools.select_demo_pairs import drop_known, normalize
from vanilla_transformer.data.demo_corpus import (
    DEMO_CORPUS_FOLDER,
    SPLIT_SIZES,
    read_demo_corpus,
    write_demo_corpus,
)

NAMES = [f"{split}.{kind}" for split in ("test", "train", "validation") for kind in ("de", "en")]


def test_demo_corpus_has_distinct_pairs_of_short_sentences():
    pairs = {split: read_demo_corpus(split, size) for split, size in SPLIT_SIZES.items()}
    assert {split: len({*rows}) for split, rows in pairs.items()} == SPLIT_SIZES
    assert read_demo_corpus("train", 7) == pairs["train"][:7]
    for rows in pairs.values():
        for pair in rows:
            assert all(1 <= len(side.split()) <= 6 for side in pair)
    for side in (0, 1):
        texts = []
        for rows in pairs.values():
            texts.append({normalize(pair[side]) for pair in rows})
        train, validation, test = texts
        assert not train & validation and not train & test and not validation & test


def test_drop_known_ignores_case_and_punctuation():
    pairs = [("Go home!", "Geh heim!"), ("Run home.", "Lauf heim."), ("A dog.", "Ein Hund.")]
    others = drop_known(pairs, [("GO, home", "Fort."), ("Away.", "lauf heim")])
    assert others == [("A dog.", "Ein Hund.")]


def test_demo_corpus_refuses_unknown_splits_and_sizes(tmp_path):
    with pytest.raises(ValueError, match="got 0"):
        write_demo_corpus(tmp_path / "corpus", train=5, validation=5, test=0)
    assert not (tmp_path / "corpus").exists()
    with pytest.raises(ValueError, match="has the splits train, validation, test, got 'dev'"):
        read_demo_corpus("dev", 1)
    for count in (0, 501):
        message = f"test pairs of the demo corpus must be from 1 to 500, got {count}"
        with pytest.raises(ValueError, match=message):
            read_demo_corpus("test", count)


def test_write_demo_corpus_writes_the_pairs_line_by_line_with_their_license(tmp_path):
    folder = tmp_path / "new" / "folder"
    write_demo_corpus(folder, train=300, validation=25, test=35)  # whose files are replaced
    paths = write_demo_corpus(folder, train=200, validation=20, test=30)
    assert sorted(paths) == NAMES
    assert sorted(os.listdir(folder)) == ["README.md", *NAMES]
    for split, count in (("train", 200), ("validation", 20), ("test", 30)):
        pairs = read_demo_corpus(split, count)
        sources = "".join(f"{pair.source}\n" for pair in pairs)
        targets = "".join(f"{pair.target}\n" for pair in pairs)
        assert paths[f"{split}.en"].read_bytes().decode() == sources
        assert paths[f"{split}.de"].read_bytes().decode() == targets
    notice = (folder / "README.md").read_text(encoding="utf-8")
    for name in ("Tatoeba", "CC BY 2.0 FR", "https://www.manythings.org/anki/"):
        assert name in notice
    assert all(f"{size:,}" in notice for size in SPLIT_SIZES.values())


def test_demo_corpus_ships_at_most_two_megabytes():
    assert sum(path.stat().st_size for path in DEMO_CORPUS_FOLDER.iterdir()) <= 2_000_000
