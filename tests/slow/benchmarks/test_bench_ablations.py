"""Each run of `bench_ablations` is trained once and compared with the recipe."""

import json

import pytest

from benchmarks import bench_ablations
from tests.tiny_benchmarks import record_ablation_calls, write_ablation_recipe


@pytest.fixture
def calls(monkeypatch):
    return record_ablation_calls(monkeypatch)


@pytest.fixture
def arguments(tmp_path):
    return write_ablation_recipe(tmp_path)


def test_bench_ablations_trains_each_change_once_and_compares_it(calls, arguments, tmp_path, capsys):
    arguments += ["--max_steps", "4", "--change", "label_smoothing=0", "--change", "dropout=0+vocab_size=290"]
    bench_ablations.main(arguments)
    assert calls.count("train.py") == 3 and calls.count("evaluate.py") == 6
    results = json.loads((tmp_path / "out" / "choices.json").read_text())
    rows = {row["choice"]: row for row in results["rows"]}
    others = [f"the recipe, {kind}" for kind in ("last checkpoint alone", "EMA", "best validation")]
    assert list(rows) == ["the recipe", *others, "label_smoothing=0", "dropout=0+vocab_size=290"]
    assert rows["the recipe"]["updates"] == rows["label_smoothing=0"]["updates"] == 4
    assert rows["the recipe"]["comparison"] is None
    assert 0 <= rows["label_smoothing=0"]["comparison"]["chrf"]["p_value"] <= 1
    config = json.loads((tmp_path / "out" / "dropout=0+vocab_size=290" / "config.json").read_text())
    assert (config["dropout"], config["vocab_size"]) == (0.0, 290)
    table = (tmp_path / "out" / "choices.md").read_text()
    assert table in capsys.readouterr().out and "| label_smoothing=0 | 4 |" in table
    calls.clear()
    bench_ablations.main([*arguments, "--change", "seed=1"])
    assert calls == ["train.py", "evaluate.py"]
    with pytest.raises(ValueError, match="max_steps=4, but this run has 5"):
        bench_ablations.main([*arguments, "--max_steps", "5"])
