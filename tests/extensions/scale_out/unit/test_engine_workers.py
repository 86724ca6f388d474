"""Numbers of worker processes: their threads, and which are refused."""

import pytest

from vanilla_transformer.extensions.scale_out import engine_workers
from vanilla_transformer.machine import cores, memory
from vanilla_transformer.machine.cores import check_workers


def test_check_workers_follows_the_quota_of_a_container(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "membership")
    (tmp_path / "membership").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text("350000 100000\n")
    check_workers(3)
    with pytest.raises(
        ValueError, match="from 1 to 3, the number of cores that this process may use, got 4"
    ):
        check_workers(4)


@pytest.mark.parametrize("workers", [0, -1, 5, 1.0, True, "2", None])
def test_check_workers_refuses_other_values(monkeypatch, workers):
    monkeypatch.setattr(cores, "usable_cores", lambda: 4)
    with pytest.raises(ValueError, match="`workers` must be an integer from 1 to 4, .*, got "):
        check_workers(workers)


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("sentences", [0, 1, 63, 64, 65, 1000, 9999])
def test_split_covers_the_sentences_by_ever_smaller_chunks(sentences, workers):
    chunks = [*engine_workers._split([*range(sentences)], workers)]
    assert [index for chunk in chunks for index in chunk] == [*range(sentences)]
    sizes = [len(chunk) for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True) and max(sizes, default=0) <= 512
    assert min(sizes[:-1], default=64) >= 64
