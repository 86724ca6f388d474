"""One update: the gradient of the mean loss over all target tokens of all batches of all processes, and a step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch.nn.utils import clip_grad_norm_

from vanilla_transformer.data.batch_sampler import Batch, count_tokens

from .arguments import Recipe
from .checkpoint import list_checkpoints
from .distributed import sum_over_processes
from .metrics import UpdateSums
from .sharding import exchange_gradients, whole_tensor
from .train_state import Learner


class NumberedBatch(NamedTuple):
    """A batch, and which pairs of the corpus it holds, counted from 0."""

    numbers: list[int]
    tensors: Batch


class Updater:
    """Makes the updates of a learner."""

    def __init__(self, learner: Learner, recipe: Recipe):
        self.learner = learner
        self.accelerator = learner.accelerator
        self.options = recipe.optimization
        self.output_dir = recipe.output.output_dir

    def update(self, batches: Sequence[NumberedBatch], step: int) -> tuple[UpdateSums, torch.Tensor]:
        """
        Makes the update that comes behind `step` others, from this process's batches.

        Returns:
            Sums over all processes, and the gradient's norm.

        Raises:
            FloatingPointError: the loss is not finite; the parameters are as they were.
        """
        tensors = [send_to_device(batch.tensors, self.accelerator.device) for batch in batches]
        tokens = sum_over_processes(self.accelerator, [sum(count_tokens(batch) for batch in tensors)])[0]
        losses = []
        for index, batch in enumerate(tensors):
            self._seed_draws(step, index)
            with self._gradients_stay_here(until_last=index < len(tensors) - 1):
                losses.append(self._backward(batch, tokens))
        sums = UpdateSums(*sum_over_processes(self.accelerator, _sum_update(losses, tensors)).tolist())
        self._check_finite(sums, batches, step)
        norm = self._clip_gradient()
        self.learner.step()
        return sums, norm

    def _seed_draws(self, step: int, index: int) -> None:
        """
        Makes dropout a function of seed, update and batch, wherever the batch is computed: a run that goes on draws
        what it would have drawn, and two processes draw what one that accumulates does.
        """
        of_update = index * self.accelerator.num_processes + self.accelerator.process_index
        entropy = (self.options.seed, step, of_update)
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1)))

    @contextmanager
    def _gradients_stay_here(self, until_last: bool) -> Iterator[None]:
        """While batches accumulate processes need not exchange their gradients."""
        prepared, objective = self.learner.prepared, self.learner.objective
        if self.options.fsdp:
            exchange_gradients(objective, not until_last)
        with self.accelerator.no_sync(prepared) if until_last and prepared is not objective else nullcontext():
            yield

    def _backward(self, batch: Batch, tokens: torch.Tensor) -> torch.Tensor:
        """Adds one batch's share to the gradient; returns its plain and its smoothed loss, summed over tokens."""
        with self.accelerator.autocast():
            loss = self.learner.prepared(batch)
        # Processes average their gradients, but `tokens` already counts those of all of them.
        self.accelerator.backward(loss.smoothed * self.accelerator.num_processes / tokens)
        return torch.stack([loss.plain, loss.smoothed.detach()])

    def _check_finite(self, sums: UpdateSums, batches: Sequence[NumberedBatch], step: int) -> None:
        if np.isfinite(sums.smoothed_loss):
            return
        saved = list_checkpoints(self.output_dir)
        sentences = [number + 1 for batch in batches for number in batch.numbers]
        raise FloatingPointError(
            f"The loss of update {step + 1} is {sums.smoothed_loss}, so training stops. This process's "
            f"part of it was sentences {', '.join(map(str, sentences))} of the corpus. The last good checkpoint is "
            f"{saved[-1] if saved else 'none'}. A lower learning rate, a longer warm-up or --max_grad_norm 1 may help."
        )

    def _clip_gradient(self) -> torch.Tensor:
        """The norm of the whole gradient, which is scaled down to `max_grad_norm` where that is given."""
        self.accelerator.unscale_gradients(self.learner.optimizer)
        most = self.options.max_grad_norm
        return whole_tensor(clip_grad_norm_(self.learner.core.parameters(), float("inf") if most is None else most))


def _sum_update(losses: list[torch.Tensor], batches: list[Batch]) -> torch.Tensor:
    """The values of `UpdateSums` for this process's batches."""
    counts = [[count_tokens(batch), *_count_both_sides(batch)] for batch in batches]
    return torch.cat([torch.stack(losses).sum(dim=0).cpu().double(), torch.tensor(counts).sum(dim=0)])


def _count_both_sides(batch: Batch) -> tuple[int, int]:
    """Tokens of source and target, without and with padding."""
    tokens = int(batch["attention_mask"].sum()) + count_tokens(batch)
    return tokens, batch["input_ids"].numel() + batch["labels"].numel()
