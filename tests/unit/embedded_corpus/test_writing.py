"""The corpus as files."""

import os
from pathlib import Path

import pytest

from vanilla_transformer.embedded_corpus import generate_pairs, write_corpus

NAMES = ["test.de", "test.en", "train.de", "train.en", "validation.de", "validation.en"]


def test_the_files_hold_the_generated_pairs_line_by_line(tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "new" / "folder", train=200, validation=20, test=30, seed=4)
    assert sorted(paths) == NAMES
    for split, count in (("train", 200), ("validation", 20), ("test", 30)):
        pairs = generate_pairs(split, count, seed=4)
        assert paths[f"{split}.en"].read_bytes().decode("utf-8") == "".join(f"{pair.source}\n" for pair in pairs)
        assert paths[f"{split}.de"].read_bytes().decode("utf-8") == "".join(f"{pair.target}\n" for pair in pairs)


def test_nothing_but_the_six_files_is_left_and_others_can_read_them(tmp_path: Path) -> None:
    paths = write_corpus(tmp_path, train=5, validation=5, test=5)
    assert sorted(os.listdir(tmp_path)) == NAMES
    assert {path.stat().st_mode & 0o777 for path in paths.values()} == {0o644}


def test_writing_again_replaces_the_files(tmp_path: Path) -> None:
    write_corpus(tmp_path, train=50, validation=5, test=5, seed=1)
    paths = write_corpus(tmp_path, train=5, validation=5, test=5, seed=2)
    assert len(paths["train.en"].read_text(encoding="utf-8").splitlines()) == 5


def test_a_refused_count_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got count 0 for test"):
        write_corpus(tmp_path / "corpus", train=5, validation=5, test=0)
    assert not (tmp_path / "corpus").exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path, train=5, validation=5, test=5, seed=1)
    before = {name: (tmp_path / name).read_bytes() for name in NAMES}

    def refuse(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_corpus(tmp_path, train=5, validation=5, test=5, seed=2)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
