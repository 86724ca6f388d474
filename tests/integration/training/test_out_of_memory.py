"""Training on a device whose memory ends: one line, and a checkpoint from which the run resumes."""

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny_runs import flags, no_scores
from vanilla_transformer.training.loss import ModelWithLoss
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

WITHOUT_VALIDATION = {"validation_source": None, "validation_target": None}


def test_train_resumes_from_the_checkpoint_before_the_memory_ended(corpus, tmp_path, monkeypatch):
    def run(name):
        recipe = parse_recipe(flags(corpus, tmp_path / name, **WITHOUT_VALIDATION))
        return load_file(train(recipe, evaluate=no_scores) / "model.safetensors")

    expected, calls, forward = run("straight"), [], ModelWithLoss.forward

    def fail_at_fifth(model, batch):
        calls.append(batch)
        if len(calls) == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(model, batch)

    with (
        monkeypatch.context() as patch,
        pytest.raises(ValueError, match="A batch of .* in step 5 it") as error,
    ):
        patch.setattr(ModelWithLoss, "forward", fail_at_fifth)
        run("stopped")
    assert "Lower `max_tokens`, now 64" in str(error.value)
    assert f"The last checkpoint is {tmp_path / 'stopped' / 'checkpoint-3'}" in str(error.value)
    resumed = run("stopped")
    assert all(torch.equal(resumed[name], weight) for name, weight in expected.items())


def test_train_names_validation_that_does_not_fit_into_memory(corpus, tmp_path):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(
        ValueError,
        match="Validation must fit into the memory .* in step 4 it did not. Lower `max_to",
    ):
        train(parse_recipe(flags(corpus, tmp_path / "run")), evaluate=fail)
    assert (tmp_path / "run" / "checkpoint-3").exists()
