"""Integration tests of `bench_ablations`: each run is trained once and compared with the recipe."""

import importlib
import json
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState

from benchmarks import bench_ablations
from vanilla_transformer.data.demo_corpus import write_demo_corpus

TINY = {
    "vocab_size": 300,
    "max_tokens": 256,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "warmup_steps": 10,
    "ema_decay": 0.5,
    "logging_steps": 2,
    "eval_steps": 2,
    "save_steps": 2,
    "best_metric": "loss",
}


@pytest.fixture
def calls(monkeypatch):
    """Return the benchmark with scripts called in this process, which has the slow imports done."""
    calls = []

    def call(script, *arguments):
        calls.append(script)
        importlib.import_module(f"vanilla_transformer.cli.{Path(script).stem}").main(arguments)

    monkeypatch.setattr(bench_ablations, "_call", call)
    yield calls
    AcceleratorState._reset_state(reset_partial_state=True)  # it keeps the first requested precision


@pytest.fixture
def arguments(tmp_path):
    corpus = write_demo_corpus(tmp_path / "corpus", train=60, validation=2, test=2)
    options = {f"train_{side}": str(corpus[f"train.{end}"]) for side, end in (("source", "en"), ("target", "de"))}
    options |= {
        f"validation_{side}": str(corpus[f"validation.{end}"]) for side, end in (("source", "en"), ("target", "de"))
    }
    options |= TINY | {"cache_dir": str(tmp_path / "cache")}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(options))
    test = ["--test_source", str(corpus["test.en"]), "--test_target", str(corpus["test.de"])]
    return [str(tmp_path / "tiny.yaml"), *test, "--output_dir", str(tmp_path / "out"), "--bootstrap_samples", "20"]


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "change, message",
    [("dropuot=0.1", "There is no flag 'dropuot'. Did you mean 'dropout'"), ("dropout", "FLAG=VALUE")],
)
def test_bench_ablations_refuses_invalid_changes_before_training(calls, arguments, change, message):
    with pytest.raises(ValueError, match=message):
        bench_ablations.main([*arguments, "--max_steps", "4", "--change", change])
    assert calls == []
