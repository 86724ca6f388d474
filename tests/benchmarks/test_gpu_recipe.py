"""The parts `recipe` and `corpus` of `make gpu` with tiny models: the command `train` as a process on the CPU."""

import time

import pytest

from benchmarks import gpu_corpus, gpu_recipe
from benchmarks.gpu_recipe import FIRST_START, SECOND_START, RunRows, TrainCommand
from benchmarks.gpu_report import Rows, read_rows
from vanilla_transformer.data.demo_corpus import read_demo_corpus

_LATER = 600.0  # seconds, more than any of these runs takes


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return a folder with files of the names of Multi30k."""
    folder = tmp_path_factory.mktemp("multi30k")
    for split, name, count in (("train", "train", 60), ("validation", "val", 3), ("test", "test_2016_flickr", 2)):
        sides = zip(*read_demo_corpus(split, count), strict=True)
        for ending, side in zip(("en", "de"), sides, strict=True):
            (folder / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return folder


def test_recipe_measures_a_whole_run_and_a_second_start(text, tmp_path):
    rows = RunRows(Rows(tmp_path / "rows", "recipe"), "tiny", {})
    gpu_recipe.measure_run(rows, text, tmp_path, time.monotonic() + _LATER, gpu_recipe.TINY)
    found = {row["measured"]: row for row in read_rows(tmp_path / "rows")}
    assert [*found] == [FIRST_START, "whole run", "training", SECOND_START, "validation"]
    assert not rows.failed and all(row["value"] > 0 for row in found.values())
    assert 0 <= found[FIRST_START]["compile_seconds"] < found[FIRST_START]["value"] < found["whole run"]["value"]
    assert found[FIRST_START]["step"] == 2 and found["training"]["steps"] == 10
    assert found["validation"]["pairs"] == 3


def test_corpus_compares_the_command_with_ready_batches(tmp_path):
    rows = RunRows(Rows(tmp_path / "rows", "corpus"), "tiny", {"training": {"at_least": {"ratio": 0.0}}})
    assert gpu_corpus.Cells(rows, tmp_path, time.monotonic() + _LATER, gpu_corpus.TINY).measure_run()
    found = {row["measured"]: row for row in read_rows(tmp_path / "rows")}
    assert [*found] == [gpu_corpus.TEXT, gpu_corpus.READY, FIRST_START, "training"]
    assert not rows.failed and found["training"]["met"]
    trained, ready = found["training"], found[gpu_corpus.READY]
    assert trained["ratio"] == pytest.approx(trained["value"] / ready["value"], rel=0.01)
    assert trained["seconds"] >= 1.0 and trained["validations"] > 0 and trained["checkpoints"] > 0


def test_train_command_reports_its_last_line_and_the_end_of_time(tmp_path):
    with TrainCommand(["nothing"], tmp_path / "run", tmp_path / "caches") as command:
        assert not command.wait(time.monotonic())
        with pytest.raises(RuntimeError, match="^error: There is no recipe 'nothing'"):
            command.measure_start(time.monotonic() + _LATER)
