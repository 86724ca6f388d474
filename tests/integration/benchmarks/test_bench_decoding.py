"""Integration tests of `bench_decoding`: refused requests, and the profile of both systems."""

import pytest

from tests.tiny_benchmarks import shrink_bench_decoding


@pytest.fixture
def benchmark(monkeypatch):
    return shrink_bench_decoding(monkeypatch)


def test_bench_decoding_refuses_different_numbers_of_tokens(benchmark, monkeypatch):
    model = benchmark.random_model("small")
    model.lm_head.bias.data[2] = 1e4  # ends at once
    monkeypatch.setattr(benchmark, "random_model", lambda size: model)
    with pytest.raises(ValueError, match="must return 32 tokens per sentence, but Marian, ours"):
        benchmark.main(["--sizes", "small", "--rounds", "1"])


def test_bench_decoding_profiles_both_systems(benchmark, capsys):
    benchmark.main(["--sizes", "small", "--profile"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert 5 < len(rows) <= 12 and all(row[1].endswith("%") for row in rows)


def test_bench_decoding_refuses_words_before_flags(benchmark):
    with pytest.raises(ValueError, match="got 'runs/mine'"):
        benchmark.main(["runs/mine"])
