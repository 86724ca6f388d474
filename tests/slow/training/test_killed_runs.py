"""A resumed run equals an uninterrupted one bit for bit, and the comparison detects every difference."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.harness import ROOT
from tests import killed_runs

FILES = ["model.safetensors", "ema/model.safetensors"]
FILES += [f"checkpoint-{step}/{part}.safetensors" for step in (9, 10) for part in ("model", "optimizer", "ema")]
LINES = [
    {"epoch": 0, "pairs": [number], "tokens": f"t{number}", "dropped": f"d{number}"}
    | {"generator_before": f"g{number}", "generator_after": f"h{number}"}
    for number in range(4)
]
ENTRIES = [
    {"step": step, "loss": 1.0 / step, "learning_rate": 0.1 / step, "tokens_per_second": 3.0 * step} for step in (1, 2)
]


def write_run(folder, records):
    """Write the folder of a finished run and return it with the records of its parts, each of one process."""
    for number, name in enumerate(FILES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_file({"weight": torch.arange(3.0) + number}, folder / name)
    state = {
        "progress": {"batch_sampler": {"epoch": 1}, "lr_scheduler": {"last_epoch": 10}},
        "param_groups": [{"lr": 0.1}],
    }
    for step in (9, 10):
        (folder / f"checkpoint-{step}" / "training_state.json").write_text(json.dumps(state))
    write_log(folder, ENTRIES)
    return killed_runs.FinishedRun(folder, copy.deepcopy(records))


def write_log(folder, entries):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def differing(uninterrupted, resumed):
    return {item for item, same in killed_runs.compare(uninterrupted, resumed).items() if not same}


@pytest.fixture
def uninterrupted(tmp_path):
    return write_run(tmp_path / "uninterrupted", [[LINES]])


@pytest.fixture
def resumed(tmp_path):
    """Return a run killed in its third batch and resumed from the second."""
    return write_run(tmp_path / "resumed", [[LINES[:2]], [LINES[1:]]])


def test_compare_ignores_times(uninterrupted, resumed):
    write_log(resumed.folder, [entry | {"tokens_per_second": 1.0} for entry in ENTRIES])
    assert differing(uninterrupted, resumed) == set()


@pytest.mark.parametrize(
    "file, item",
    [
        ("model.safetensors", "average of checkpoints"),
        ("ema/model.safetensors", "moving average"),
        ("checkpoint-9/model.safetensors", "weights"),
        ("checkpoint-10/optimizer.safetensors", "optimizer"),
        ("checkpoint-10/ema.safetensors", "moving average"),
    ],
)
def test_compare_detects_one_bit_of_one_tensor(uninterrupted, resumed, file, item):
    weight = load_file(resumed.folder / file)["weight"]
    save_file({"weight": torch.nextafter(weight, torch.tensor(9.0))}, resumed.folder / file)
    assert differing(uninterrupted, resumed) == {item}


def test_same_tensors_detects_the_sign_of_zero(tmp_path):
    for name, zero in (("a", 0.0), ("b", -0.0)):
        save_file({"weight": torch.tensor([zero])}, tmp_path / name)
    assert killed_runs.same_tensors(tmp_path / "a", tmp_path / "a")
    assert not killed_runs.same_tensors(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    "name, item",
    [("pairs", "batch order"), ("tokens", "BPE-dropout"), ("dropped", "dropout"), ("epoch", "batch order")],
)
@pytest.mark.parametrize("part", [0, 1])
def test_compare_detects_different_draws_before_and_after_the_kill(uninterrupted, resumed, name, item, part):
    resumed.records[part][0][-1][name] = "another"
    assert differing(uninterrupted, resumed) == {item}


def test_compare_detects_a_missing_batch(uninterrupted, tmp_path):
    resumed = write_run(tmp_path / "resumed", [[LINES[:1]], [LINES[2:]]])
    assert differing(uninterrupted, resumed) == {"batch order", "BPE-dropout", "dropout"}


@pytest.mark.parametrize(
    "name, value, items",
    [
        ("batch_sampler", {"epoch": 2}, {"batch order"}),
        ("lr_scheduler", {"last_epoch": 11}, {"schedule"}),
    ],
)
def test_compare_detects_different_progress(uninterrupted, resumed, name, value, items):
    path = resumed.folder / "checkpoint-10" / "training_state.json"
    state = json.loads(path.read_text())
    state["progress"][name] = value
    path.write_text(json.dumps(state))
    assert differing(uninterrupted, resumed) == items


def test_compare_detects_different_metrics(uninterrupted, resumed):
    write_log(resumed.folder, [ENTRIES[0], ENTRIES[1] | {"loss": 0.4}])
    assert differing(uninterrupted, resumed) == {"logged steps"}
    write_log(resumed.folder, [ENTRIES[0], ENTRIES[1] | {"learning_rate": 0.4}])
    assert differing(uninterrupted, resumed) == {"logged steps", "schedule"}
    write_log(resumed.folder, [*ENTRIES, ENTRIES[1]])
    assert "logged steps" in differing(uninterrupted, resumed)


@pytest.mark.parametrize("processes", [1, 2])
def test_resumed_run_equals_an_uninterrupted_one_after_kills_at_exact_places(tmp_path, processes):
    killed_runs.write_corpus(tmp_path)
    rows = killed_runs.compare_places(tmp_path, processes)
    # Before update 2, inside update 4 and while checkpoint 3 was written. A thread may still write the one before.
    resumed = [rows[index]["resumed from update"] for index in (0, 1, 3)]
    assert resumed[0] in (0, 1) and resumed[1] in (2, 3) and resumed[2] == 2
    compared = [value for row in rows for value in row.values() if isinstance(value, bool)]
    assert len(compared) == 4 * 9 and all(compared)


def test_resumed_run_has_equal_weights_after_kills_at_random_moments():
    command = [sys.executable, "-m", "tests.killed_runs", "4"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert rows == [{"processes": n, "runs": 2, "status": 0, "weights": True} for n in (1, 2)]
