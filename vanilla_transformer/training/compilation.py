"""Compile the training step with `torch.compile`: one graph for all shapes of batches, before the first step."""

from contextlib import AbstractContextManager, nullcontext

import torch

from vanilla_transformer.data.micro_batch import IGNORED_LABEL
from vanilla_transformer.decoding.engine.compiled_steps import find_compiler

from .train_state import TrainState

# Batch size, source and target length differ and are above 1: torch compiles sizes that are equal in the first batch,
# or 1, for that case only, and again when they are not.
_PAIRS, _SOURCE_UNITS, _TARGET_UNITS = 5, 2, 3


def check_compiler() -> None:
    """Refuse to compile where there is no compiler.

    Raises:
        ValueError: there is no C++ compiler.
    """
    if find_compiler() is None:
        raise ValueError("`compile` needs a C++ compiler, and there is none. Install g++, or leave `compile` out.")


def compile_step(state: TrainState, pad_to_multiple_of: int) -> None:
    """Compile forward and backward pass with an invented batch. Parameters and gradients do not change.

    All processes must call it together.

    Raises:
        ValueError: the compiler fails.
    """
    try:
        with state.accelerator.autocast():
            loss = state.wrapped_model(_invent_batch(state, pad_to_multiple_of))
        state.accelerator.backward(loss.smoothed)
    except RuntimeError as error:  # of torch and the compilers; they have no other type in common
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"`compile` must work on this machine, but fails: {reason} Leave `compile` out.") from error
    state.optimizer.zero_grad()


def _invent_batch(state: TrainState, unit: int) -> dict[str, torch.Tensor]:
    """Return a batch of sizes that differ; the last tokens of the first pair are padding."""
    source = torch.full((_PAIRS, _SOURCE_UNITS * unit), state.tokenizer.eos_token_id)
    labels = torch.full((_PAIRS, _TARGET_UNITS * unit), state.tokenizer.eos_token_id)
    attention_mask = torch.ones_like(source)
    source[0, -1], attention_mask[0, -1], labels[0, -1] = state.tokenizer.pad_token_id, 0, IGNORED_LABEL
    return state.to_device({"input_ids": source, "attention_mask": attention_mask, "labels": labels})


def eager_for_one_pair(batch: dict[str, torch.Tensor]) -> AbstractContextManager[None]:
    """Leave a batch of one pair uncompiled: torch would compile for a size of 1 again."""
    return torch.compiler.set_stance("force_eager") if len(batch["input_ids"]) == 1 else nullcontext()
