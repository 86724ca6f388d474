"""Invalid changes are refused by `bench_ablations` before it trains."""

import pytest

from benchmarks import bench_ablations
from tests.tiny_benchmarks import record_ablation_calls, write_ablation_recipe


@pytest.fixture
def calls(monkeypatch):
    return record_ablation_calls(monkeypatch)


@pytest.fixture
def arguments(tmp_path):
    return write_ablation_recipe(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [("dropuot=0.1", "There is no flag 'dropuot'. Did you mean 'dropout'"), ("dropout", "FLAG=VALUE")],
)
def test_bench_ablations_refuses_invalid_changes_before_training(calls, arguments, change, message):
    with pytest.raises(ValueError, match=message):
        bench_ablations.main([*arguments, "--max_steps", "4", "--change", change])
    assert calls == []
