"""The parts `recipe` and `corpus` of `make gpu`: rates, rows, the generated text, and the command
with tiny models.
"""

import time

import pytest

from benchmarks import gpu_train_command
from benchmarks.gpu_report import Rows, read_rows
from benchmarks.gpu_train_command import (
    FIRST_START,
    SECOND_START,
    RunRows,
    TrainCommand,
    build_tokenizer,
    rates,
    steady_entries,
    write_text,
)
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.readers import read_text_files

_LATER = 600.0  # seconds, more than any of these runs takes


def entry(step, seconds, tokens_per_second=100.0):
    return {"step": step, "minutes": seconds / 60, "tokens_per_second": tokens_per_second}


def test_rates_weight_each_line_by_its_time():
    # The time of a validation is a part of the line after it, and of the rates.
    entries = [entry(50, 30, 1.0), entry(100, 40, 300.0), entry(150, 70, 100.0)]
    measured = rates(entries)
    assert measured.pop("seconds") == 40.0
    assert measured.pop("steps") == 100
    assert measured == {"steps_per_second": 2.5, "tokens_per_second": 150}


SECOND_HALF = [2, 3, 4]


@pytest.mark.parametrize(
    ("minutes", "steps"),
    [(1.0, [3, 4]), (0.0, [1, 2, 3, 4]), (2.0, SECOND_HALF), (9.0, SECOND_HALF)],
)
def test_steady_entries_begin_after_some_minutes(minutes, steps):
    entries = [entry(1, 20), entry(2, 50), entry(3, 60), entry(4, 120)]
    assert [line["step"] for line in steady_entries(entries, minutes)] == steps


def test_steady_entries_need_two_lines():
    with pytest.raises(ValueError, match="a rate needs two lines of the log, got 1"):
        steady_entries([entry(1, 20)], 0.0)


def test_run_rows_count_errors_but_not_a_lack_of_time(tmp_path):
    def run_out_of_time():
        raise TimeoutError("no step was logged")

    def fail():
        raise RuntimeError("error: no text")

    goals = {"rate": {"at_least": {"value": 2}}}
    rows = RunRows(Rows(tmp_path / "rows", "part"), "run", goals)
    assert rows.add("rate", "steps/s", lambda: {"value": 2.5})
    assert not rows.add("rate", "steps/s", run_out_of_time)
    assert rows.failed == 0
    assert not rows.add("start", "s", fail)
    assert rows.failed == 1
    written = read_rows(tmp_path / "rows")
    assert [row.get("met") for row in written] == [True, False, None]
    errors = [row.get("error") for row in written]
    assert errors[1:] == ["TimeoutError: no step was logged", "RuntimeError: error: no text"]
    assert errors[0] is None


def test_recipe_is_skipped_without_a_network(tmp_path, monkeypatch):
    def fail(name, folder):
        raise OSError("Cannot download train.en.gz: no route. Nothing was written.")

    monkeypatch.setattr(gpu_train_command, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_train_command, "download_corpus", fail)
    assert gpu_train_command.main("recipe", str(tmp_path / "rows"), 1.0) == 0
    reason = "skipped: Cannot download train.en.gz: no route. Nothing was written."
    (row,) = read_rows(tmp_path / "rows")
    assert row == {"run": "multi30k_en_de", "measured": "all", "error": reason}


def test_recipe_uses_text_that_was_downloaded_before(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_train_command, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_train_command, "download_corpus", lambda name, folder: folder / name)
    folder = tmp_path / "data" / "multi30k"
    assert gpu_train_command.find_text(None) == folder / "multi30k"
    folder.mkdir(parents=True)
    assert gpu_train_command.find_text(None) == folder


@pytest.mark.parametrize("part", ["recipe", "corpus"])
def test_part_is_skipped_without_packages(part, tmp_path, monkeypatch):
    def find_spec(name):
        return None if name == "datasets" else name

    monkeypatch.setattr(gpu_train_command, "find_spec", find_spec)
    assert gpu_train_command.main(part, str(tmp_path / "rows"), 1.0) == 0
    (row,) = read_rows(tmp_path / "rows")
    assert row["error"].startswith("skipped: `train` needs datasets, which ")


def test_generated_words_have_one_token_and_translation(tmp_path):
    files = write_text(tmp_path, "train", 300, 1000, seed=1)
    tokenizer = build_tokenizer(1000)
    assert len(tokenizer) == 1000
    translations, lengths = {}, []
    for pair in read_text_files(files.source, files.target):
        source, target = pair.source.split(), pair.target.split()
        lengths.append((len(source), len(target)))
        # The first words are aligned, and so are all words of lines of one length.
        aligned = len(source) if len(source) == len(target) else 1
        for word, translation in zip(source[:aligned], target[:aligned], strict=True):
            assert translations.setdefault(word, translation) == translation
        *ids, end = tokenizer(pair.source)["input_ids"]
        assert len(ids) == len(source)
        assert end == tokenizer.eos_token_id
        assert min(ids) > 2
    assert len(lengths) == 300
    assert len(set(translations.values())) == len(translations) > 100
    for side in zip(*lengths, strict=True):
        assert 22 < sum(side) / 300 < 30


def test_generated_text_is_the_same_for_a_seed(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_text(tmp_path, name, 5, 50, seed)
    first, same, other = ((tmp_path / f"{name}.target").read_text() for name in "abc")
    assert first == same != other


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return a folder with files of the names of Multi30k."""
    folder = tmp_path_factory.mktemp("multi30k")
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    for (split, name), count in zip(names.items(), (60, 3, 2), strict=True):
        sides = zip(*read_demo_corpus(split, count), strict=True)
        for ending, side in zip(("en", "de"), sides, strict=True):
            lines = "".join(f"{line}\n" for line in side)
            (folder / f"{name}.{ending}").write_text(lines, encoding="utf-8")
    return folder


def rows_by_name(path):
    return {row["measured"]: row for row in read_rows(path)}


def test_recipe_measures_a_whole_run_and_a_second_start(text, tmp_path):
    rows = RunRows(Rows(tmp_path / "rows", "recipe"), "tiny", {})
    end = time.monotonic() + _LATER
    gpu_train_command.measure_run(rows, text, tmp_path, end, gpu_train_command.TINY_RECIPE)
    measured = rows_by_name(tmp_path / "rows")
    assert [*measured] == [FIRST_START, "whole run", "training", SECOND_START, "validation"]
    assert not rows.failed
    assert all(row["value"] > 0 for row in measured.values())
    first = measured[FIRST_START]
    assert 0 <= first["compile_seconds"] < first["value"] < measured["whole run"]["value"]
    assert first["step"] == 2
    assert measured["training"]["steps"] == 10
    assert measured["validation"]["pairs"] == 3


def test_corpus_compares_the_command_with_ready_batches(tmp_path):
    goals = {"training": {"at_least": {"ratio": 0.0}}}
    rows = RunRows(Rows(tmp_path / "rows", "corpus"), "tiny", goals)
    end = time.monotonic() + _LATER
    cells = gpu_train_command.Cells(rows, tmp_path, end, gpu_train_command.TINY_CORPUS)
    assert cells.measure_run()
    measured = rows_by_name(tmp_path / "rows")
    text, ready = gpu_train_command.TEXT, gpu_train_command.READY
    assert [*measured] == [text, ready, FIRST_START, "training"]
    assert not rows.failed
    trained = measured["training"]
    assert trained["met"]
    ratio = trained["value"] / measured[ready]["value"]
    assert trained["ratio"] == pytest.approx(ratio, rel=0.01)
    assert trained["seconds"] >= 1.0
    assert trained["validations"] > 0
    assert trained["checkpoints"] > 0


def test_train_command_reports_its_last_line(tmp_path):
    with TrainCommand(["nothing"], tmp_path / "run", tmp_path / "caches") as command:
        assert not command.wait(time.monotonic())
        with pytest.raises(RuntimeError, match="^error: There is no recipe 'nothing'"):
            command.measure_start(time.monotonic() + _LATER)
