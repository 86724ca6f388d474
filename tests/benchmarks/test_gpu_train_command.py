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
    assert rates(entries) == {
        "seconds": 40.0,
        "steps": 100,
        "steps_per_second": 2.5,
        "tokens_per_second": 150,
    }


@pytest.mark.parametrize(
    ("minutes", "steps"), [(1.0, [3, 4]), (0.0, [1, 2, 3, 4]), (2.0, [2, 3, 4]), (9.0, [2, 3, 4])]
)
def test_steady_entries_begin_after_some_minutes_or_in_the_second_half(minutes, steps):
    entries = [entry(step, seconds) for step, seconds in ((1, 20), (2, 50), (3, 60), (4, 120))]
    assert [each["step"] for each in steady_entries(entries, minutes)] == steps


def test_steady_entries_need_two_lines():
    with pytest.raises(ValueError, match="a rate needs two lines of the log, got 1"):
        steady_entries([entry(1, 20)], 0.0)


def test_run_rows_count_errors_but_not_a_lack_of_time(tmp_path):
    def raise_error(error):
        raise error

    rows = RunRows(Rows(tmp_path / "rows", "part"), "run", {"rate": {"at_least": {"value": 2}}})
    assert rows.add("rate", "steps/s", lambda: {"value": 2.5})
    assert not rows.add("rate", "steps/s", lambda: raise_error(TimeoutError("no step was logged")))
    assert rows.failed == 0
    assert not rows.add("start", "s", lambda: raise_error(RuntimeError("error: no text")))
    assert rows.failed == 1
    found = read_rows(tmp_path / "rows")
    assert [row.get("met") for row in found] == [True, False, None]
    assert [row.get("error") for row in found] == [
        None,
        "TimeoutError: no step was logged",
        "RuntimeError: error: no text",
    ]


def test_recipe_says_that_it_is_skipped_without_a_network(tmp_path, monkeypatch):
    def fail(name, folder):
        raise OSError("Cannot download train.en.gz: no route. Nothing was written.")

    monkeypatch.setattr(gpu_train_command, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_train_command, "download_corpus", fail)
    assert gpu_train_command.main("recipe", str(tmp_path / "rows"), 1.0) == 0
    reason = "skipped: Cannot download train.en.gz: no route. Nothing was written."
    assert read_rows(tmp_path / "rows") == [
        {"run": "multi30k_en_de", "measured": "all", "error": reason}
    ]


def test_recipe_uses_text_that_was_downloaded_before(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_train_command, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_train_command, "download_corpus", lambda name, folder: folder / name)
    assert gpu_train_command.find_text(None) == tmp_path / "data" / "multi30k" / "multi30k"
    (tmp_path / "data" / "multi30k").mkdir(parents=True)
    assert gpu_train_command.find_text(None) == tmp_path / "data" / "multi30k"


@pytest.mark.parametrize("part", ["recipe", "corpus"])
def test_a_part_says_that_it_is_skipped_without_packages(part, tmp_path, monkeypatch):
    monkeypatch.setattr(
        gpu_train_command, "find_spec", lambda name: None if name == "datasets" else name
    )
    assert gpu_train_command.main(part, str(tmp_path / "rows"), 1.0) == 0
    (row,) = read_rows(tmp_path / "rows")
    assert row["error"].startswith("skipped: `train` needs datasets, which ")


def test_generated_text_has_one_token_for_each_word_and_one_translation_of_it(tmp_path):
    files, tokenizer = write_text(tmp_path, "train", 300, 1000, seed=1), build_tokenizer(1000)
    assert len(tokenizer) == 1000
    translations, lengths = {}, []
    for source, target in read_text_files(files.source, files.target):
        lengths.append((len(source.split()), len(target.split())))
        # The first words are aligned, and so are all words of lines of one length.
        pairs = (
            zip(source.split(), target.split(), strict=False) if len(set(lengths[-1])) == 1 else ()
        )
        for word, translation in [(source.split()[0], target.split()[0]), *pairs]:
            assert translations.setdefault(word, translation) == translation
        ids = tokenizer(source)["input_ids"]
        assert (
            len(ids) == lengths[-1][0] + 1
            and ids[-1] == tokenizer.eos_token_id
            and min(ids[:-1]) > 2
        )
    assert len(lengths) == 300 and len(set(translations.values())) == len(translations) > 100
    means = [sum(side) / 300 for side in zip(*lengths, strict=True)]
    assert all(22 < mean < 30 for mean in means)


def test_generated_text_is_the_same_for_a_seed(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_text(tmp_path, name, 5, 50, seed)
    first, same, other = ((tmp_path / f"{name}.target").read_text() for name in "abc")
    assert first == same != other


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return a folder with files of the names of Multi30k."""
    folder = tmp_path_factory.mktemp("multi30k")
    for split, name, count in (
        ("train", "train", 60),
        ("validation", "val", 3),
        ("test", "test_2016_flickr", 2),
    ):
        sides = zip(*read_demo_corpus(split, count), strict=True)
        for ending, side in zip(("en", "de"), sides, strict=True):
            (folder / f"{name}.{ending}").write_text(
                "".join(f"{line}\n" for line in side), encoding="utf-8"
            )
    return folder


def test_recipe_measures_a_whole_run_and_a_second_start(text, tmp_path):
    rows = RunRows(Rows(tmp_path / "rows", "recipe"), "tiny", {})
    gpu_train_command.measure_run(
        rows, text, tmp_path, time.monotonic() + _LATER, gpu_train_command.TINY_RECIPE
    )
    found = {row["measured"]: row for row in read_rows(tmp_path / "rows")}
    assert [*found] == [FIRST_START, "whole run", "training", SECOND_START, "validation"]
    assert not rows.failed and all(row["value"] > 0 for row in found.values())
    assert (
        0
        <= found[FIRST_START]["compile_seconds"]
        < found[FIRST_START]["value"]
        < found["whole run"]["value"]
    )
    assert found[FIRST_START]["step"] == 2 and found["training"]["steps"] == 10
    assert found["validation"]["pairs"] == 3


def test_corpus_compares_the_command_with_ready_batches(tmp_path):
    rows = RunRows(
        Rows(tmp_path / "rows", "corpus"), "tiny", {"training": {"at_least": {"ratio": 0.0}}}
    )
    assert gpu_train_command.Cells(
        rows, tmp_path, time.monotonic() + _LATER, gpu_train_command.TINY_CORPUS
    ).measure_run()
    found = {row["measured"]: row for row in read_rows(tmp_path / "rows")}
    assert [*found] == [gpu_train_command.TEXT, gpu_train_command.READY, FIRST_START, "training"]
    assert not rows.failed and found["training"]["met"]
    trained, ready = found["training"], found[gpu_train_command.READY]
    assert trained["ratio"] == pytest.approx(trained["value"] / ready["value"], rel=0.01)
    assert trained["seconds"] >= 1.0 and trained["validations"] > 0 and trained["checkpoints"] > 0


def test_train_command_reports_its_last_line_and_the_end_of_time(tmp_path):
    with TrainCommand(["nothing"], tmp_path / "run", tmp_path / "caches") as command:
        assert not command.wait(time.monotonic())
        with pytest.raises(RuntimeError, match="^error: There is no recipe 'nothing'"):
            command.measure_start(time.monotonic() + _LATER)
