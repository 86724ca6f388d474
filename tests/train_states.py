"""A training state of a tiny model, the micro-batches of a step without files, and fp16 on a CPU."""

from collections.abc import Iterable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.nn.utils.rnn import pad_sequence

from tests.devices import GPU
from tests.tiny import tiny_model
from vanilla_transformer.data.batches import BatchShape, MicroBatch, TokenCounts
from vanilla_transformer.data.packing import pack_pairs
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.train_state import TrainState

EOS = 2


def tiny_train_state(
    output_dir: Path | str,
    accelerator: Accelerator | None = None,
    sizes: dict[str, Any] | None = None,
    **changes: Any,
) -> TrainState:
    """Create the state of a new run, of a model of other `sizes` if given.

    `changes` are keys of its recipe.
    """
    options = {"train_source": "a", "train_target": "b", "output_dir": output_dir}
    options |= {"warmup_steps": 10, "dropout": 0.0} | changes
    words = list[str]()
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    recipe = parse_recipe(words)
    fields = {"vocab_size": 40, "dropout": 0.1} | (sizes or {})
    model: Any = tiny_model(**fields)
    if recipe.optimization.attn_implementation is not None:
        model.set_attn_implementation(recipe.optimization.attn_implementation)
    state = TrainState(recipe, model, None, accelerator or Accelerator(), {})  # type: ignore[arg-type]
    state.wrapped_model.train()
    return state


class _OnStandIn(Accelerator):
    """An accelerator whose device has no values."""

    device = GPU


def accelerator_of_stand_in(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    """Return an accelerator of the stand-in for a GPU, whose tensors fused Adam and autocast then
    take.
    """
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    adam = import_module("torch.optim.adam")
    monkeypatch.setattr(adam, "_device_dtype_check_for_fused", lambda *_, **__: None)
    return _OnStandIn(cpu=True)


def micro_batches(*lengths: list[int]) -> list[MicroBatch]:
    """Return a micro-batch for each list of the lengths of its sentences."""
    total = sum(map(sum, lengths))
    return [_micro_batch(batch, total) for batch in lengths]


def _micro_batch(lengths: list[int], step_target_tokens: int) -> MicroBatch:
    ids = [torch.tensor(sentence) for sentence in _sentences(lengths)]
    labels = pad_sequence(ids, batch_first=True, padding_value=-100)
    mask = labels != -100
    tensors = {"input_ids": labels.where(mask, 0), "attention_mask": mask.long(), "labels": labels}
    counts = TokenCounts(sum(lengths), sum(lengths), 2 * len(lengths) * max(lengths))
    return MicroBatch(tensors, np.arange(len(lengths)), counts, step_target_tokens)


def _sentences(lengths: Iterable[int]) -> list[list[int]]:
    """Return sentences of these lengths, whose tokens are the number of the sentence and 5."""
    sentences = []
    for number, length in enumerate(lengths):
        sentences.append([5 + number] * (length - 1) + [EOS])
    return sentences


def packed_micro_batch(lengths: list[list[int]], length: int) -> MicroBatch:
    """Return a micro-batch whose rows hold sentences of the given lengths, the same on both
    sides.
    """
    flat = np.concatenate(lengths)
    ids = np.concatenate(_sentences(flat))
    rows = np.repeat(np.arange(len(lengths)), [len(row) for row in lengths])
    shape = BatchShape(len(lengths), length, length)
    arrays, _, _ = pack_pairs((ids, flat), (ids, flat), rows, shape, 0)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    counts = TokenCounts(len(ids), len(ids), 2 * len(lengths) * length)
    return MicroBatch(tensors, np.arange(len(flat)), counts, len(ids))


def parameters_of(state: TrainState) -> list[torch.Tensor]:
    """Return copies of all parameters and of the tensors of the optimizer."""
    tensors = [*state.unwrapped_model.parameters()]
    for moments in state.optimizer.state.values():
        tensors += moments.values()
    return [tensor.detach().clone() for tensor in tensors]


SCALE = 2.0**12


class HalfPrecision(Accelerator):
    """Behave as an `Accelerator` with fp16 on a GPU."""

    initial_scale = SCALE

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.native_amp = True
        self.scaler = torch.amp.GradScaler("cpu", init_scale=self.initial_scale, growth_interval=3)

    @property
    def mixed_precision(self) -> str:
        return "fp16"

    def autocast(self, *_: Any) -> Any:
        return torch.autocast("cpu", torch.float16)
