"""Tests of `bench_training`: tokens are counted without padding, in both training loops."""

import pytest
import torch

from benchmarks import throughput_meter, training_worker


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
        model(torch.tensor([[1, 5, 6, 7], [1, 5, 2, 0]])).backward()  # by position, too
        with pytest.raises(throughput_meter.TimeLimitReached):
            optimizer.step()
    finally:
        meter.hook.remove()
    assert meter.result["target_tokens_an_update"] == 6
    assert meter.result["target_padding"] == pytest.approx(0.25)
    assert meter.result["parameters"] == 3
