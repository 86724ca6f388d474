"""Benchmarks with tiny models that run in this process."""

import importlib
import sys
from pathlib import Path

import yaml

from benchmarks import bench_ablations, bench_decoding
from tests.tiny import TINY_SIZES
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.decoding.engine import custom_generate

TINY_RECIPE = TINY_SIZES | {
    "vocab_size": 300,
    "max_tokens": 256,
    "warmup_steps": 10,
    "ema_decay": 0.5,
    "logging_steps": 2,
    "eval_steps": 2,
    "save_steps": 2,
    "best_metric": "loss",
}
TINY_DECODING_SIZE = {
    "vocab_size": 64,
    "d_model": 16,
    "of each side": {"layers": 1, "attention_heads": 2, "ffn_dim": 16},
}


def record_ablation_calls(monkeypatch):
    """Call scripts of `bench_ablations` in this process, which has the slow imports done; return their names."""
    calls = []

    def call(script, *arguments):
        calls.append(script)
        importlib.import_module(f"vanilla_transformer.cli.{Path(script).stem}").main(arguments)

    monkeypatch.setattr(bench_ablations, "_call", call)
    return calls


def write_ablation_recipe(folder):
    """Write a corpus and a recipe into `folder` and return the arguments of `bench_ablations`."""
    corpus = write_demo_corpus(folder / "corpus", train=60, validation=2, test=2)
    options = {f"train_{side}": str(corpus[f"train.{end}"]) for side, end in (("source", "en"), ("target", "de"))}
    options |= {
        f"validation_{side}": str(corpus[f"validation.{end}"]) for side, end in (("source", "en"), ("target", "de"))
    }
    options |= TINY_RECIPE | {"cache_dir": str(folder / "cache")}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(options))
    test = ["--test_source", str(corpus["test.en"]), "--test_target", str(corpus["test.de"])]
    return [str(folder / "tiny.yaml"), *test, "--output_dir", str(folder / "out"), "--bootstrap_samples", "20"]


def shrink_bench_decoding(monkeypatch):
    """Give `bench_decoding` a tiny model and eager steps, and run every toolkit in this environment."""
    monkeypatch.setattr(bench_decoding, "COMPILE", False)
    monkeypatch.setattr(custom_generate, "EnginePool", custom_generate.EnginePool)  # which the benchmark replaces
    monkeypatch.setattr(bench_decoding, "python_of", lambda name: Path(sys.executable))
    monkeypatch.setitem(bench_decoding.SIZES, "small", TINY_DECODING_SIZE)
    return bench_decoding
