"""One training step: the gradient of the mean loss over all target tokens of all processes, and an
optimizer step.

The host only gives orders here. It reads no value of the device and exchanges none with other
processes, except for the gradients; `TrainState.read_steps` does so for many steps at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_, get_total_norm

from vanilla_transformer.data.batches import Batch, MicroBatch
from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.reasons import first_line

from .compilation import uncompiled
from .device_batch import batch_to_device
from .distributed import full_tensor, skip_gradient_sync
from .metrics import UnreadStep
from .train_state import TrainState

# Steps after which losses are read, if nothing is logged before: the host keeps the numbers of
# their pairs.
_MOST_UNREAD_STEPS = 100
_MOST_STEPS_TO_COMPILE = 20  # in which a batch of several pairs is sought


def train_step(state: TrainState, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
    """Make one optimizer step from this process's micro-batches: forward, backward, clip, Adam,
    schedule, EMA.

    The losses are kept in `state.unread`. If the gradient is not finite, the device leaves the
    parameters as they are, and `state.read_steps` raises an error.

    Returns:
        The norm of the gradient, before clipping, on the device.
    """
    if len(state.unread) >= _MOST_UNREAD_STEPS:
        state.read_steps()
    loss = compute_gradient(state, micro_batches)
    # The first step allocates the state of Adam, when the memory already holds all gradients.
    largest = max(micro_batches, key=lambda batch: batch.counts.padded_tokens)
    with explain_out_of_memory(state, _describe_batch(largest), state.step + 1):
        norm, finite = update(state) if state.graphs is None else state.graphs.update()
    tokens = [batch.counts for batch in micro_batches]
    source, target, padded = map(sum, zip(*tokens, strict=True))
    counts = (target, source + target, padded)
    pairs = [batch.pairs for batch in micro_batches]
    state.unread.append(
        UnreadStep(state.step + 1, torch.stack([*loss.unbind(), finite]), counts, pairs)
    )
    state.lr_scheduler.step()
    state.progress.step += 1
    return norm


def update(state: TrainState) -> tuple[torch.Tensor, torch.Tensor]:
    """Clip the gradient, update parameters and EMA, and reset the gradient, all on the device.

    Returns:
        The norm of the gradient, before clipping, and whether it is finite. If not, the parameters
        do not change.
    """
    state.accelerator.unscale_gradients(state.optimizer)
    # Without a walk through the modules, which takes a quarter of a millisecond.
    parameters = [
        parameter for group in state.optimizer.param_groups for parameter in group["params"]
    ]
    limit = state.recipe.optimization.max_grad_norm
    if limit is not None:
        norm = full_tensor(clip_grad_norm_(parameters, limit))
    else:
        norm = full_tensor(
            get_total_norm(
                [parameter.grad for parameter in parameters if parameter.grad is not None]
            )
        )
    finite = torch.isfinite(norm)
    if state.accelerator.scaler is None:
        # A scaler sets this attribute as well: with 1, a fused optimizer changes neither parameters
        # nor moments.
        state.optimizer.optimizer.found_inf = (~finite).float()
    state.optimizer.step()
    if state.graphs is None:  # the first captured gradient of a step replaces the one before
        state.optimizer.zero_grad()
    if state.ema is not None:
        state.ema.update()
    return norm, finite


def compute_gradient(state: TrainState, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
    """Add the gradient of a step.

    Return its plain and its smoothed loss, summed over tokens, on the device.
    """
    losses = []
    for index, batch in enumerate(micro_batches):
        seed_dropout(state, index)
        # DDP averages gradients over processes, but a step's target tokens are counted over all
        # processes.
        factor = state.accelerator.num_processes / batch.step_target_tokens
        with (
            skip_gradient_sync(
                state.accelerator, state.wrapped_model, skip=index < len(micro_batches) - 1
            ),
            explain_out_of_memory(state, _describe_batch(batch), state.step + 1),
            uncompiled(state.model_with_loss, when=len(batch.pairs) == 1 and not state.packing),
        ):
            if state.graphs is not None:
                loss = state.graphs.add_gradient(
                    state.batch_preparation(batch.tensors), factor, first=index == 0
                )
            else:
                tensors = batch_to_device(
                    batch.tensors, state.batch_preparation, state.accelerator.device
                )
                loss = add_gradient(state, tensors, factor)
        losses.append(loss)
    return torch.stack(losses).sum(dim=0)


def compile_train_step(state: TrainState, steps: Iterable[Sequence[MicroBatch]]) -> None:
    """Compile forward and backward pass by the gradient of a batch. Parameters and gradients do not
    change.

    All processes must call it together.

    Args:
        steps: The first steps. The batch is the first one of several pairs: torch compiles a size
            of 1 for itself.
    """
    for batch in chain.from_iterable(islice(steps, _MOST_STEPS_TO_COMPILE)):
        if len(batch.pairs) > 1:
            break
    try:
        compute_gradient(state, [batch])
    except RuntimeError as error:  # of torch and the compilers; they have no other type in common
        reason = first_line(error)
        raise UserError(
            f"`compile` must work on this machine, but fails: {reason} Set `compile` to false."
        ) from error
    state.optimizer.zero_grad()


def seed_dropout(state: TrainState, index: int) -> None:
    """Seed dropout from (seed, step, micro-batch).

    A resumed run draws the same masks, and so do N processes and one process that accumulates N
    micro-batches.
    """
    accelerator = state.accelerator
    micro_batch = index * accelerator.num_processes + accelerator.process_index
    sequence = np.random.SeedSequence((state.recipe.optimization.seed, state.step, micro_batch))
    seed = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
    # `torch.manual_seed` also formats a stack for each kind of device that this process does not
    # use.
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed(seed)


def add_gradient(state: TrainState, batch: Batch, factor: float | torch.Tensor) -> torch.Tensor:
    """Add the gradient of a batch on the device, times a factor.

    Return its plain and its smoothed loss.
    """
    with state.accelerator.autocast():
        loss = state.wrapped_model(batch)
    state.accelerator.backward(loss.smoothed * factor)
    return torch.stack([loss.plain, loss.smoothed.detach()])


def _describe_batch(batch: MicroBatch) -> str:
    source, target, padded = batch.counts
    return f"A batch of {source} source and {target} target tokens ({padded} with padding)"


@contextmanager
def explain_out_of_memory(state: TrainState, what: str, step: int) -> Iterator[None]:
    """Say in one line what does not fit into the memory of the device, and what to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{what} must fit into the memory of {state.accelerator.device}, but in step {step} it "
            f"did not. Lower `max_tokens`, now {state.recipe.data.max_tokens}, and raise "
            "`gradient_accumulation_steps` by the same factor to keep the size of a step; this is "
            "another run, with another --output_dir. The last checkpoint is "
            f"{state.last_checkpoint() or 'none'}; with more free memory, the same command resumes "
            "from it."
        ) from error
