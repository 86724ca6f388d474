"""A corpus is worked on shard by shard; finished shards are skipped, and lines keep their order and
number.
"""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from vanilla_transformer.decoding import corpus_shards
from vanilla_transformer.decoding.corpus_shards import (
    SHARD_LINES,
    CorpusShards,
    Shard,
    number_shards,
    work_in_turn,
    write_shards,
)
from vanilla_transformer.files.atomic import write_text_atomically

LINES = [f"line {number}" for number in range(7)]
ORIGIN = {"input": "1", "model": "2", "options": {"num_beams": 4}}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shards"


def opened(folder, resume=True, shard_lines=3, **changes):
    shards = CorpusShards(folder, ORIGIN | changes, shard_lines)
    shards.open(resume)
    return shards


def work(shards, lines=LINES, most=None):
    """Write the lines in capitals, and return the numbers of the shards that were written."""
    written = []
    for shard in shards.unfinished(lines):
        if len(written) == most:
            break
        shards.write(shard, [line.upper() for line in shard.lines])
        written.append(shard.number)
    return written


def test_number_shards_counts_the_lines_before():
    shards = [Shard(0, 0, LINES[:3]), Shard(1, 3, LINES[3:5])]
    assert [*number_shards([LINES[:3], LINES[3:5]])] == shards


@pytest.mark.parametrize("most", [0, 1, 2, None])
def test_corpus_shards_skip_finished_ones(folder, most):
    first = work(opened(folder), most=most)
    again = opened(folder, shard_lines=2 if first else 3)  # a run keeps the size that it began with
    assert again.finished_lines == min(3 * len(first), len(LINES))
    assert [*first, *work(again)] == [0, 1, 2]
    assert "".join(again.results(7)) == "".join(f"{line.upper()}\n" for line in LINES)
    again.delete()
    assert not folder.exists()


def test_corpus_shards_keep_results_of_several_lines_written_in_any_order(folder):
    shards = opened(folder)
    for shard in reversed([*shards.unfinished(LINES)]):
        shards.write(shard, [f"{line}\r\n\u2028second" for line in shard.lines])
    expected = []
    for line in LINES:
        expected += [f"{line}\r", "\u2028second"]
    assert [*shards.result_lines(7)] == expected


SIZES = {1: 2048, 2_048_000: 2048, 2_048_001: 2048, 10**7: 10_240, 10**8: 100_352, 10**9: 100_352}


@pytest.mark.parametrize(("total", "lines"), SIZES.items())
def test_corpus_shards_of_a_large_corpus_have_a_thousandth(tmp_path, total, lines):
    assert CorpusShards(tmp_path, {}, SHARD_LINES, total).shard_lines == lines
    assert lines <= max(SHARD_LINES, total / 1000 + SHARD_LINES), (
        "lines that a killed process loses"
    )


def test_shard_units_are_the_shards_of_small_files():
    """A seed depends on the unit of a line, not on the size of its file."""
    small = [*number_shards([LINES[:2], LINES[2:4], LINES[4:6], LINES[6:]])]
    large = [*number_shards([LINES[:4], LINES[4:]])]
    assert [unit for shard in large for unit in shard.units(2)] == small


def test_work_in_turn_works_on_units_of_large_files(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_shards, "_FILES", 2)
    store, units = CorpusShards(tmp_path / "shards", ORIGIN, 1, 7), []
    store.open(resume=False)

    def note(unit):
        units.append(unit)
        return unit.lines

    store.complete(LINES, partial(work_in_turn, work=note))
    assert [*store.result_lines(7)] == LINES
    assert units == [*number_shards([[line] for line in LINES])]
    assert sorted(path.name for path in store.folder.glob("0*")) == [
        "000000.txt",
        "000001.txt",
        "000002.txt",
    ]


def test_corpus_shards_read_files_of_an_interrupted_run_once(folder, monkeypatch):
    """Read them while the folder is opened. A network disk may repeat an old answer later."""
    work(opened(folder), most=2)
    read, numbers = CorpusShards._read, []

    def note(self, number):
        numbers.append(number)
        return read(self, number)

    monkeypatch.setattr(CorpusShards, "_read", note)
    assert work(opened(folder)) == [2]
    assert sorted(numbers) == [0, 1]


DAMAGE = [lambda text: "", lambda text: "LINE 3\n", lambda text: text.replace("5", "6"), None]


@pytest.mark.parametrize("damage", DAMAGE)
def test_corpus_shards_make_damaged_results_again(folder, damage, caplog):
    work(opened(folder))
    path = folder / "000001.txt"
    path.unlink() if damage is None else path.write_text(damage(path.read_text()))
    (folder / ".000001.txt.17").write_text("{")  # of a writer that was killed
    with pytest.raises(ValueError, match="must have the results of 3 lines as shard 1"):
        [*opened(folder).results(7)]
    shards = opened(folder)
    assert shards.finished_lines == 4 and work(shards) == [1] and shards.finished_lines == 7
    assert ("The result of shard 1 in" in caplog.text) is (damage is not None)
    shards.delete()
    assert not folder.exists()


def test_corpus_shards_must_be_complete(folder):
    work(opened(folder), most=2)
    for total, message in {7: "of 1 lines as shard 2", 5: "of 2 lines as shard 1"}.items():
        with pytest.raises(ValueError, match=f"must have the results {message}"):
            [*opened(folder).results(total)]


@pytest.mark.parametrize("results", [["A", "B"], ["A", "B", "C", "D"], []])
def test_corpus_shards_refuse_another_number_of_results(folder, results):
    shards = opened(folder)
    message = rf"^Lines 1 to 3 must have one result each, got {len(results)}\.$"
    with pytest.raises(ValueError, match=message):
        shards.write(next(shards.unfinished(LINES)), results)
    assert os.listdir(folder) == ["manifest.json"]


@pytest.mark.parametrize("lines", [["line 0", "line 1", "line Z", *LINES[3:]], LINES[:2]])
def test_corpus_shards_refuse_other_lines(folder, lines):
    work(opened(folder), most=1)
    message = "must be the ones from which .* was made, but they differ. Delete"
    with pytest.raises(ValueError, match=message):
        work(opened(folder), lines)


ANOTHER_INPUT = "same input as .*, but the input is another one. Delete .* to start again."
INTERRUPTED = "has 3 sentences of an interrupted run. Add --resume to continue it. Delete"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": "9"}, ANOTHER_INPUT),
        ({"model": "9"}, "same model as .*, but the model is another one."),
        ({"options": {"num_beams": 5}}, "same options as .*, but `num_beams` was 4 and is 5."),
        ({"options": {"num_beams": 4, "top_k": 1}}, "but `top_k` was None and is 1."),
        ({"resume": False}, INTERRUPTED),
    ],
)
def test_corpus_shards_continue_only_the_same_run(folder, change, message):
    opened(folder, **change)
    work(opened(folder), most=1)  # nothing was finished before
    with pytest.raises(ValueError, match=message):
        opened(folder, **change)
    opened(folder).delete()
    assert work(opened(folder, **change)) == [0, 1, 2]


WITHOUT_SIZE = json.dumps({"shard_lines": None, "origin": {}})


@pytest.mark.parametrize("content", ["", "[]", "{}", WITHOUT_SIZE, "[" * 10**5])
def test_corpus_shards_name_a_damaged_manifest(folder, content):
    work(opened(folder), most=1)
    (folder / "manifest.json").write_text(content)
    message = "manifest.json must describe .*, but it is damaged. Delete .* to start aga"
    with pytest.raises(ValueError, match=message):
        opened(folder)


@pytest.mark.parametrize("name", ["notes.md", "000000.txt", "1.json"])
def test_corpus_shards_refuse_a_folder_of_others(folder, name):
    folder.mkdir()
    (folder / name).write_text("mine")
    message = f"an interrupted run left, but it has {name} and no manifest.json"
    with pytest.raises(ValueError, match=message):
        opened(folder, resume=False)
    assert (folder / name).read_text() == "mine"


def test_corpus_shards_leave_files_of_others(folder):
    shards, names = opened(folder), ["1.txt", "2024-01.json", "000000.md"]
    for name in names:
        (folder / name).write_text("mine")
    work(shards)
    shards.delete()
    assert {*os.listdir(folder)} == {*names}


def test_corpus_shards_are_held_by_one_run(folder):
    first, other = (CorpusShards(folder, ORIGIN | {"input": name}, 3) for name in "12")
    with first.held(resume=False):
        manifest = (folder / "manifest.json").read_bytes()
        refusal = pytest.raises(
            ValueError, match="Only one run may use .*, but process .* is. Wait"
        )
        with refusal, other.held(True):
            pass
        assert (folder / "manifest.json").read_bytes() == manifest
        assert work(first) == [0, 1, 2]
        first.delete()
    assert not folder.exists()
    with other.held(resume=False):
        pass
    assert not folder.exists(), "nothing is left to continue"


def test_corpus_shards_of_a_killed_deletion_can_be_continued(folder, monkeypatch):
    work(opened(folder))
    unlink, deleted = Path.unlink, []

    def killing(path, **options):
        deleted.append(path.name)
        if len(deleted) == 3:
            raise KeyboardInterrupt
        unlink(path, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killing)
        opened(folder).delete()
    assert "manifest.json" in os.listdir(folder)
    assert len(work(opened(folder))) == 2


@pytest.mark.parametrize("total", [len(LINES) - 1, len(LINES) + 1])
def test_write_shards_refuses_another_number_of_lines_than_was_counted(tmp_path, total):
    def results(shards, done):
        return ((shard, shard.lines) for shard in shards)

    with pytest.raises(ValueError, match="The input must not change while it is read"):
        write_shards(tmp_path / "out", LINES, total, {}, 3, False, results)
    assert not (tmp_path / "out").exists()


OUTPUTS = {
    "all": lambda text: text,
    "the first": lambda text: text[:-1],
    "more": lambda text: f"{text}LINE 7\n",
    "others": str.lower,
    "none": lambda text: "",
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_corpus_shards_remove_shards_of_a_crash(tmp_path, kind):
    """All shards beside an output that has them are no interrupted run, but a deletion that was
    lost.
    """
    output = tmp_path / "out"
    shards = CorpusShards.beside(output, ORIGIN, 3)
    shards.open(resume=False)
    work(shards)
    results = "".join(shards.results(7))
    output.write_text(OUTPUTS[kind](results))
    again = CorpusShards.beside(output, ORIGIN | {"model": "another"}, 3)
    if kind != "all":
        with pytest.raises(ValueError, match="has 7 sentences of an interrupted run"):
            again.open(resume=False)
        return
    again.open(resume=False)
    assert again.finished_lines == 0
    assert [*again.folder.iterdir()] == [again.folder / "manifest.json"]
    assert output.read_text() == results


def test_corpus_shards_resume_keeps_whole_results(tmp_path):
    shards = CorpusShards.beside(tmp_path / "out", ORIGIN, 3)
    shards.open(resume=False)
    work(shards)
    write_text_atomically(tmp_path / "out", shards.results(7))
    again = CorpusShards.beside(tmp_path / "out", ORIGIN, 3)
    again.open(resume=True)
    assert again.finished_lines == 7
