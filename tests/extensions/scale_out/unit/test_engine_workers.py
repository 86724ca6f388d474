"""Numbers of worker processes: which are compared, which are refused, and which one `auto` means."""

import pytest
import torch
from transformers.utils import logging

from tests.tiny import tiny_model
from vanilla_transformer.extensions.scale_out import engine_workers
from vanilla_transformer.extensions.scale_out.engine_workers import (
    check_workers,
    resolve_workers,
    save_workers,
    threads_of,
    worker_counts,
)
from vanilla_transformer.utils import device_utils


@pytest.fixture
def cores(monkeypatch):
    """Return a function that sets the number of cores that this process may use."""
    return lambda number: monkeypatch.setattr(engine_workers, "usable_cores", lambda: number)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("number", "most", "pairs"),
    [
        (1, 1, [(1, 1)]),
        (2, 2, [(1, 2), (2, 1)]),
        (3, 3, [(1, 3), (3, 1)]),
        (6, 6, [(1, 6), (2, 3), (6, 1)]),
        (8, 2, [(1, 2), (4, 2), (8, 1)]),
        (8, 1, [(1, 1), (8, 1)]),
        (64, 64, [(1, 64), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1)]),
        (64, 32, [(1, 32), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1)]),
    ],
)
def test_worker_counts_use_all_cores_and_no_more(number, most, pairs):
    counts = worker_counts(number, most)
    assert [(count, threads_of(count, number, most)) for count in counts] == pairs
    assert all(count * threads <= number for count, threads in pairs)


def test_check_workers_follows_the_quota_of_a_container(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(device_utils, "_CGROUPS", tmp_path)
    monkeypatch.setattr(device_utils, "_MEMBERSHIP", tmp_path / "membership")
    (tmp_path / "membership").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text("350000 100000\n")
    check_workers(3)
    with pytest.raises(ValueError, match="from 1 to 3, the number of cores that this process may use, .*, got 4"):
        check_workers(4)


@pytest.mark.parametrize("workers", [0, -1, 5, 1.0, True, "2", None])
def test_check_workers_refuses_other_values(cores, workers):
    cores(4)
    with pytest.raises(ValueError, match="`workers` must be an integer from 1 to 4, .* or 'auto', got "):
        check_workers(workers)


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("sentences", [0, 1, 63, 64, 65, 1000, 9999])
def test_split_covers_the_sentences_by_ever_smaller_chunks(sentences, workers):
    chunks = [*engine_workers._split([*range(sentences)], workers)]
    assert [index for chunk in chunks for index in chunk] == [*range(sentences)]
    sizes = [len(chunk) for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True) and max(sizes, default=0) <= 512
    assert min(sizes[:-1], default=64) >= 64


def test_auto_follows_the_measurement_of_the_model_the_search_and_the_cores(cores, caplog, monkeypatch):
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    cores(8)
    model = tiny_model()
    save_workers(model, "float32", 1, 4, "1.60 times the speed of one.")
    assert resolve_workers(model, None, 1) == resolve_workers(model, "float32", 1) == 4
    assert '`workers="auto"` is 4: 1.60 times the speed of one.' in caplog.text
    caplog.clear()
    assert resolve_workers(model, "bfloat16", 1) == resolve_workers(model, None) == 1  # of 4 beams
    assert resolve_workers(tiny_model(seed=1), None, 1) == 1
    assert resolve_workers(model.bfloat16(), None, 1) == 1
    (line,) = {record.getMessage() for record in caplog.records}
    assert line.startswith('`workers="auto"` is 1: no others were measured') and "--workers auto --source FILE" in line
    cores(4)
    assert resolve_workers(model.float(), None, 1) == 1


def test_auto_differs_by_the_threads_that_a_process_may_have(cores, monkeypatch):
    cores(8)
    save_workers(tiny_model(), None, 1, 2, "It is fast.")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert resolve_workers(tiny_model(), None, 1) == 1


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"workers": 9, "reason": "x"}', '{"workers": "2", "reason": "x"}', '{"workers": 2}']
)
def test_auto_ignores_a_damaged_choice(cores, cache, content):
    cores(8)
    save_workers(tiny_model(), None, None, 2, "It is fast.")
    assert resolve_workers(tiny_model(), None) == 2
    (path,) = (cache / "choices" / "workers").iterdir()
    path.write_text(content)
    assert resolve_workers(tiny_model(), None) == 1
