"""One training step: the gradient of the mean loss over all target tokens of all processes, and an optimizer step."""

from collections.abc import Sequence

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch.nn.utils import clip_grad_norm_

from vanilla_transformer.data.micro_batch import MicroBatch

from .checkpoint import list_checkpoints
from .compilation import eager_for_one_pair
from .distributed import full_tensor, skip_gradient_sync, sum_over_processes
from .metrics import StepSums
from .train_state import TrainState


def train_step(state: TrainState, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
    """Make one optimizer step from this process's micro-batches: forward, backward, clip, Adam, schedule, EMA.

    The sums of losses and tokens over all processes are added to `state.step_metrics`.

    Returns:
        The norm of the gradient, before clipping.

    Raises:
        FloatingPointError: the loss is not finite; the parameters have not changed.
    """
    accelerator = state.accelerator
    losses = []
    for index, batch in enumerate(micro_batches):
        seed_dropout(state, index)
        with skip_gradient_sync(accelerator, state.wrapped_model, skip=index < len(micro_batches) - 1):
            losses.append(_backward(state, batch))
    sums = StepSums(*sum_over_processes(accelerator, _sum_step(losses, micro_batches)).tolist())
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


def _backward(state: TrainState, batch: MicroBatch) -> torch.Tensor:
    """Add one micro-batch to the gradient. Return its plain and its smoothed loss, summed over tokens."""
    accelerator = state.accelerator
    with accelerator.autocast(), eager_for_one_pair(batch.tensors):
        loss = state.wrapped_model(send_to_device(batch.tensors, accelerator.device, non_blocking=True))
    # DDP averages gradients over processes, but the step's tokens are those of all of them.
    accelerator.backward(loss.smoothed * (accelerator.num_processes / batch.step_target_tokens))
    return torch.stack([loss.plain, loss.smoothed.detach()])


def _check_finite(sums: StepSums, state: TrainState, micro_batches: Sequence[MicroBatch]) -> None:
    if np.isfinite(sums.smoothed_loss):
        return
    saved = list_checkpoints(state.recipe.output.output_dir)
    sentences = [number + 1 for batch in micro_batches for number in batch.pairs.tolist()]
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


def _sum_step(losses: list[torch.Tensor], batches: Sequence[MicroBatch]) -> torch.Tensor:
    """Compute the values of `StepSums` for this process's micro-batches."""
    source, target, padded = np.sum([batch.counts for batch in batches], axis=0)
    return torch.cat([torch.stack(losses).sum(dim=0).cpu().double(), torch.tensor([target, source + target, padded])])
