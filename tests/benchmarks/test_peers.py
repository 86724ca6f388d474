"""The toolkits that this package is compared with: their environments, text and configurations, and
the meter.
"""

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

from benchmarks import bench_training, peers
from benchmarks.peers import PEERS, Toolkit

TOOLKITS = [peer for peer in PEERS.values() if isinstance(peer, Toolkit)]


def test_peer_says_why_it_cannot_be_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(peers.venv, "create", lambda *_, **__: None)
    message = "ERROR: No matching distribution found for joeynmt==2.3.0\n"
    failed = SimpleNamespace(returncode=1, stderr=message)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    joeynmt = PEERS["JoeyNMT, float32"]
    reason = "joeynmt cannot be installed: ERROR: No matching"
    with pytest.raises(peers.InstallationFailed, match=reason):
        joeynmt.python()
    assert joeynmt.reason_to_leave_out().startswith("joeynmt cannot be installed")
    assert bench_training.PEERS["ours, bf16"].reason_to_leave_out() is None


def test_subwords_are_the_tokens_of_the_text(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    lines = ["Two dogs.", "A man is sleeping, near  the water."]
    (tmp_path / "train.en").write_text("\n".join(lines) + "\n")
    peers.write_subwords(tmp_path, ["train.en"])
    written = (tmp_path / "subwords" / "train.en").read_text().splitlines()
    vocabulary = (tmp_path / "subwords" / "vocabulary").read_text().splitlines()
    assert vocabulary[:4] == peers.SPECIAL
    with_unknown = len(tiny_tokenizer) + 1
    assert len(set(vocabulary)) == len(vocabulary) == with_unknown
    for text, line in zip(lines, written, strict=True):
        subwords = line.split()
        assert {*subwords} <= {*vocabulary}
        ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tiny_tokenizer.convert_tokens_to_ids(subwords) == ids


@pytest.mark.parametrize("toolkit", TOOLKITS, ids=lambda peer: peer.toolkit)
def test_configuration_contains_every_option(toolkit, tmp_path):
    options = {"d_model": 48, "heads": 2, "layers": 7, "ffn_dim": 96}
    options |= {"max_tokens": 1234, "warmup_steps": 55, "seed": 9}
    text = json.dumps(toolkit.configuration(tmp_path, tmp_path / "model", options))
    for value in options.values():
        assert f": {value}," in text or f": {value}}}" in text, value


class Model(torch.nn.Module):
    """The parts of a model that the meter uses."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.config = SimpleNamespace(eos_token_id=2)

    def forward(self, decoder_input_ids):
        return self.weight.sum()


def test_meter_counts_labels_after_the_warm_up():
    meter = peers.ThroughputMeter(seconds=0.0, warm_up=1, least=1)
    bench_training.watch(meter, Model)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    try:
        model(decoder_input_ids=torch.tensor([[1, 7, 7]])).backward()
        optimizer.step()
        # Labels 5 6 7 EOS, and 5 EOS: the start symbol stands before them, the last of the longest
        # row is not read.
        model(torch.tensor([[1, 5, 6, 7], [1, 5, 2, 0]])).backward()  # by position, too
        with pytest.raises(peers.TimeLimitReached):
            optimizer.step()
    finally:
        meter.hook.remove()
    assert meter.result["target_tokens_an_update"] == 6
    assert meter.result["target_padding"] == pytest.approx(0.25)
    assert meter.result["parameters"] == 3
