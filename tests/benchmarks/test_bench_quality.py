"""Each run of `bench_quality` is trained once and compared with the recipe."""

import json

import pytest
import yaml

from benchmarks import bench_quality
from benchmarks.bench_training import StockTrainer
from tests.tiny import TINY_SIZES
from vanilla_transformer.cli import find_command
from vanilla_transformer.data.demo_corpus import write_demo_corpus

RECIPE = TINY_SIZES | {"vocab_size": 300, "max_tokens": 256, "warmup_steps": 10, "ema_decay": 0.5}
RECIPE |= {"logging_steps": 2, "eval_steps": 2, "save_steps": 2, "best_metric": "loss"}


@pytest.fixture
def calls(monkeypatch):
    """Run commands in this process, which has the slow imports done, and collect their names."""
    found = []

    def call(command, *arguments):
        found.append(command)
        find_command(command)(arguments)

    monkeypatch.setattr(bench_quality, "_call", call)
    return found


@pytest.fixture
def arguments(tmp_path):
    """Write a corpus and a recipe, and return arguments of the benchmark."""
    corpus = write_demo_corpus(tmp_path / "corpus", train=60, validation=2, test=2)
    ends = (("source", "en"), ("target", "de"))
    texts = {
        f"{split}_{side}": str(corpus[f"{split}.{end}"]) for split in ("train", "validation") for side, end in ends
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(texts | RECIPE | {"cache_dir": str(tmp_path / "cache")}))
    test = ["--test_source", str(corpus["test.en"]), "--test_target", str(corpus["test.de"])]
    return [str(tmp_path / "tiny.yaml"), *test, "--output_dir", str(tmp_path / "out"), "--bootstrap_samples", "20"]


def test_bench_quality_trains_each_change_once_and_compares_it(calls, arguments, tmp_path, capsys):
    arguments += ["--max_steps", "4", "--change", "label_smoothing=0", "dropout=0+vocab_size=290"]
    bench_quality.main(arguments)
    assert calls.count("train") == 3 and calls.count("evaluate") == 6
    rows = json.loads((tmp_path / "out" / "quality.json").read_text())["rows"]
    found = {row["system"]: row for row in rows}
    others = [f"the recipe, {kind}" for kind in ("last checkpoint alone", "EMA", "best validation")]
    assert list(found) == ["the recipe", *others, "label_smoothing=0", "dropout=0+vocab_size=290"]
    assert found["the recipe"]["updates"] == found["label_smoothing=0"]["updates"] == 4
    assert "p-value" not in found["the recipe"] and 0 <= float(found["label_smoothing=0"]["p-value"]) <= 1
    config = json.loads((tmp_path / "out" / "dropout=0+vocab_size=290" / "config.json").read_text())
    assert (config["dropout"], config["vocab_size"]) == (0.0, 290)
    table = (tmp_path / "out" / "quality.md").read_text()
    assert table in capsys.readouterr().out and "| label_smoothing=0 | 4 |" in table
    calls.clear()
    bench_quality.main([*arguments, "seed=1"])
    assert calls == ["train", "evaluate"]
    arguments[arguments.index("--max_steps") + 1] = "5"
    with pytest.raises(ValueError, match="max_steps=4, but this run has 5"):
        bench_quality.main(arguments)


def test_bench_quality_trains_another_system_on_the_text_of_the_recipe(calls, arguments, tmp_path, monkeypatch):
    name, failing = bench_quality.OTHERS[:2]

    def fail(self, *_):
        raise RuntimeError("JoeyNMT ended with status 1:\nmore")

    monkeypatch.setattr(type(bench_quality.PEERS[failing]), "measure_training", fail)
    monkeypatch.setattr(StockTrainer, "translate_file", lambda *_: ["Ein Mann.", "Zwei Hunde."])
    bench_quality.main([*arguments, "--max_minutes", "0.02", "--peers", name, failing])
    report = json.loads((tmp_path / "out" / "quality.json").read_text())
    row = report["rows"][-1]
    assert row["system"] == name and row["updates"] >= 1 and {"BLEU", "p-value"} <= row.keys()
    assert (tmp_path / "out" / "peer-marian" / "model.safetensors").exists()
    assert report["notes"][-1] == f"{failing}: JoeyNMT ended with status 1:"


@pytest.mark.parametrize(
    "more, message",
    [
        (["--max_steps", "4", "--change", "dropuot=0.1"], "There is no flag 'dropuot'. Did you mean 'dropout'"),
        (["--max_steps", "4", "--change", "dropout"], "FLAG=VALUE"),
        ([], "either --max_steps N or --max_minutes N"),
        (["--max_steps", "4", "--peers", "all"], "train for --max_minutes"),
        (["--max_minutes", "1", "--peers", "fairseq"], "--peers must be all, or of Seq2SeqTrainer"),
    ],
)
def test_bench_quality_refuses_invalid_flags_before_training(calls, arguments, more, message):
    with pytest.raises(ValueError, match=message):
        bench_quality.main([*arguments, *more])
    assert calls == []
