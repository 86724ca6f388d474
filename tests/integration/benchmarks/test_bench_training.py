"""Tests of `bench_training`: tokens are counted without padding, in both training loops."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import throughput_meter, training_worker

ROOT = Path(__file__).parents[3]


class Model(torch.nn.Module):
    """The parts of a model that the meter uses."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.config = type("Config", (), {"eos_token_id": 2})

    def forward(self, decoder_input_ids):
        return self.weight.sum()


def test_throughput_meter_counts_labels_after_the_warm_up():
    meter = throughput_meter.ThroughputMeter(seconds=0.0, warm_up=1, least=1)
    training_worker.watch(meter, Model)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    try:
        model(decoder_input_ids=torch.tensor([[1, 7, 7]])).backward()
        optimizer.step()
        # Labels 5 6 7 EOS, and 5 EOS: the start symbol stands before them, the last of the longest row is not read.
        model(decoder_input_ids=torch.tensor([[1, 5, 6, 7], [1, 5, 2, 0]])).backward()
        with pytest.raises(throughput_meter.TimeLimitReached):
            optimizer.step()
    finally:
        meter.hook.remove()
    assert meter.result["target_tokens_an_update"] == 6
    assert meter.result["target_padding"] == pytest.approx(0.25)
    assert meter.result["parameters"] == 3


@pytest.mark.slow
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
