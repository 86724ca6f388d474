"""The command `bench_training` measures both training loops."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_bench_training_measures_both_loops(tmp_path):
    tiny = ["--d_model", "32", "--heads", "2", "--layers", "1", "--ffn_dim", "64", "--vocab_size", "600"]
    tiny += [
        "--seconds",
        "0",
        "--updates",
        "3",
        "--repeats",
        "1",
        "--sides",
        "0",
        "3",
        "6",
        "--output_dir",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "benchmarks.bench_training", *tiny]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    results = json.loads((tmp_path / "training.json").read_text())["results"]
    assert len(results) == 3
    for (found,) in results.values():
        assert found["tokens_per_second"] > 0 and found["peak_mib"] > found["peak_over_resident_mib"] > 0
    padding = [found["target_padding"] for (found,) in results.values()]
    assert padding[0] < 0.1 and padding[1] < 0.1  # batches of like length
    assert ended.stdout == (tmp_path / "training.md").read_text()
