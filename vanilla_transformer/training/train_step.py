"""One training step: the gradient of the mean loss over all target tokens of all processes, and an optimizer step."""

from collections.abc import Sequence

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch.nn.utils import clip_grad_norm_

from vanilla_transformer.data.batch_sampler import Batch, collate, count_tokens
from vanilla_transformer.data.tokenized_corpus import EncodedPair

from .checkpoint import list_checkpoints
from .distributed import full_tensor, skip_gradient_sync, sum_over_processes
from .metrics import StepSums
from .train_state import TrainState

# The numbers of the pairs of a micro-batch in the corpus, counted from 0, and the pairs themselves.
NumberedPairs = tuple[list[int], list[EncodedPair]]


def train_step(state: TrainState, micro_batches: Sequence[NumberedPairs]) -> torch.Tensor:
    """Make one optimizer step from this process's micro-batches: forward, backward, clip, Adam, schedule, EMA.

    The sums of losses and tokens over all processes are added to `state.step_metrics`.

    Returns:
        The norm of the gradient, before clipping.

    Raises:
        FloatingPointError: the loss is not finite; the parameters have not changed.
    """
    accelerator = state.accelerator
    pad_token_id = state.tokenizer.pad_token_id
    batches = [send_to_device(collate(pairs, pad_token_id), accelerator.device) for _, pairs in micro_batches]
    tokens = sum_over_processes(accelerator, [sum(count_tokens(batch) for batch in batches)])[0]
    losses = []
    for index, batch in enumerate(batches):
        seed_dropout(state, index)
        with skip_gradient_sync(accelerator, state.wrapped_model, skip=index < len(batches) - 1):
            losses.append(_backward(state, batch, tokens))
    sums = StepSums(*sum_over_processes(accelerator, _sum_step(losses, batches)).tolist())
    _check_finite(sums, state, micro_batches)
    norm = _clip_gradient(state)
    state.optimizer_step()
    state.step_metrics.add(sums)
    return norm


def seed_dropout(state: TrainState, index: int) -> None:
    """Seed dropout from (seed, step, micro-batch).

    A resumed run draws the same masks, and so do N processes and one process that accumulates N micro-batches.
    """
    accelerator = state.accelerator
    micro_batch = index * accelerator.num_processes + accelerator.process_index
    sequence = np.random.SeedSequence((state.recipe.optimization.seed, state.step, micro_batch))
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))


def _backward(state: TrainState, batch: Batch, tokens: torch.Tensor) -> torch.Tensor:
    """Add one micro-batch to the gradient. Return its plain and its smoothed loss, summed over tokens."""
    with state.accelerator.autocast():
        loss = state.wrapped_model(batch)
    # DDP averages gradients over processes, but `tokens` already counts the tokens of all of them.
    state.accelerator.backward(loss.smoothed * state.accelerator.num_processes / tokens)
    return torch.stack([loss.plain, loss.smoothed.detach()])


def _check_finite(sums: StepSums, state: TrainState, micro_batches: Sequence[NumberedPairs]) -> None:
    if np.isfinite(sums.smoothed_loss):
        return
    saved = list_checkpoints(state.recipe.output.output_dir)
    sentences = [number + 1 for numbers, _ in micro_batches for number in numbers]
    raise FloatingPointError(
        f"The loss of step {state.step + 1} is {sums.smoothed_loss}, so training stops. This process contributed "
        f"sentences {', '.join(map(str, sentences))} of the corpus. The last good checkpoint is "
        f"{saved[-1] if saved else 'none'}. Try a lower learning rate, a longer warm-up or --max_grad_norm 1."
    )


def _clip_gradient(state: TrainState) -> torch.Tensor:
    """Return the norm of the gradient, after scaling it down to `max_grad_norm` if that is given."""
    state.accelerator.unscale_gradients(state.optimizer)
    limit = state.recipe.optimization.max_grad_norm
    norm = clip_grad_norm_(state.unwrapped_model.parameters(), float("inf") if limit is None else limit)
    return full_tensor(norm)


def _sum_step(losses: list[torch.Tensor], batches: list[Batch]) -> torch.Tensor:
    """Compute the values of `StepSums` for this process's micro-batches."""
    counts = [[count_tokens(batch), *_count_both_sides(batch)] for batch in batches]
    return torch.cat([torch.stack(losses).sum(dim=0).cpu().double(), torch.tensor(counts).sum(dim=0)])


def _count_both_sides(batch: Batch) -> tuple[int, int]:
    """Count the tokens of source and target, without and with padding."""
    tokens = int(batch["attention_mask"].sum()) + count_tokens(batch)
    return tokens, batch["input_ids"].numel() + batch["labels"].numel()
