"""The share of a machine's limit that decoding reaches."""

import pytest
import torch

from benchmarks import bench_decoding, decoder_products
from benchmarks.decoder_products import share_of_products


@pytest.mark.parametrize(("sentences", "beams", "share"), [(10, 1, 0.5), (40, 4, 0.5), (20, 4, 1.0)])
def test_share_of_products_is_1_if_steps_take_the_time_of_their_products(monkeypatch, sentences, beams, share):
    seconds = {10: 0.1, 160: 0.4, 80: 0.4}  # of the products of a step with so many hypotheses
    monkeypatch.setattr(decoder_products, "seconds_of_products", lambda model, rows, dtype: seconds[rows])
    assert share_of_products(None, torch.float32, 50.0, sentences, beams) == share


@pytest.mark.parametrize("has_torchao", [False, True])
def test_measurable_engines_include_int8_with_torchao_only(monkeypatch, has_torchao):
    precisions = ["float32", "bfloat16", *["int8"] * has_torchao]
    monkeypatch.setattr(bench_decoding, "measurable_precisions", lambda: precisions)
    assert [*bench_decoding.measurable_engines().values()] == precisions
