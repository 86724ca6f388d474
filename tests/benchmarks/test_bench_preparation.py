"""The two ways to prepare a text, side by side."""

import json
from itertools import islice

import pytest

from benchmarks import bench_preparation
from vanilla_transformer.data.readers import read_text_files


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Return flags of a small benchmark, whose measurements run in this process."""

    def run_worker(name, request, environment):
        monkeypatch.setattr(bench_preparation.os, "sched_setaffinity", lambda *_: None)
        return bench_preparation.measure(request)

    monkeypatch.setattr(bench_preparation, "run_worker", run_worker)
    words = ["--pairs", "300", "--vocab_size", "300", "--shard_pairs", "100", "--rounds", "2"]
    return [*words, "--output_dir", str(tmp_path / "results")]


def read_rows(folder):
    return json.loads((folder / "results" / "preparation.json").read_text())["rows"]


def test_both_ways_prepare_made_up_pairs(words, tmp_path, capsys):
    bench_preparation.main(words)
    rows = read_rows(tmp_path)
    assert [row["way"] for row in rows] == ["prepare", "train"]
    assert "| prepare | 300 |" in capsys.readouterr().out
    for row in rows:
        assert 0 < row["pairs left"] < row["pairs"] == 300  # some are repeated
        seconds = [row[name] for name in ("read and clean", "train the vocabulary", "tokenize")]
        assert min(seconds) > 0 and row["from"] <= row["all"] <= row["to"]
        assert row["pairs a second"] < row["without the vocabulary"]
        assert 0 < row["MiB of imports"] <= row["MiB"]


def test_the_text_may_be_two_files(words, tmp_path):
    bench_preparation.write_pairs(tmp_path, bench_preparation.make_up_pairs(1), 60)
    paths = [tmp_path / "train.en", tmp_path / "train.de"]
    pairs = islice(bench_preparation.make_up_pairs(1), 60)
    assert [*read_text_files(*paths)] == [*pairs]
    bench_preparation.main([*map(str, paths), *words])
    assert {row["pairs left"] <= 60 for row in read_rows(tmp_path)} == {True}


def test_ways_that_leave_other_pairs_are_no_result(words, monkeypatch):
    monkeypatch.setattr(bench_preparation, "run_train", lambda *_: 7)
    with pytest.raises(RuntimeError, match="Both ways must leave the same pairs, got \\[7, "):
        bench_preparation.main(words)
