"""Training gives the weights that it gave when `python -m tests.golden.training` stored them."""

import json

import pytest
import torch

from tests.golden.training import ANSWERS, CASES, answer, close, processor
from tests.sweeps import sample

KEPT = ["killed_and_resumed", "accumulation", "clipping", "bpe_dropout", "ddp"]
KEPT += ["seq2seq_trainer", "recipe_finetune_opus_mt", "recipe_multilingual"]


@pytest.fixture(scope="module")
def stored():
    return json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread: sums of several may be rounded otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", sample(CASES, *KEPT))
def test_training_gives_stored_weights(stored, name, corpus, tmp_path):
    trained = answer(name, corpus, tmp_path / name / "run")
    expected = stored[name]
    if processor() in expected["sha256"]:
        assert trained["sha256"] == expected["sha256"][processor()]
    message = "Losses or weights differ from the stored ones by more than rounding."
    assert close(trained, expected), message


def test_each_stored_run_has_a_case(stored):
    assert {*stored} == {*CASES}
