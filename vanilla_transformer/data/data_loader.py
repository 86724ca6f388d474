"""Micro-batches for the training loop, read from mapped files and padded ahead of time by worker
processes.
"""

import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch.utils.data import DataLoader, Dataset

from vanilla_transformer.errors import LostProcessError

from .batch_sampler import PlannedBatch, Position, TokenBudgetBatchSampler
from .batches import Batch, MicroBatch, round_up
from .tokenized_corpus import TokenTable

# A worker of the data loader looks this often whether the training process still runs.
SECONDS_BETWEEN_LOOKS = 0.25
# Steps that each worker of the data loader prepares ahead of the training.
STEPS_AHEAD_PER_WORKER = 2


# Forks share memory. On macOS they are unsafe, and a started process maps the files of the table
# again.
_START_METHOD = "fork" if sys.platform == "linux" else None
_ALIGNMENT = 16  # bytes; each tensor of a slot begins at a multiple of it
# Of a batch: source, labels and the places of labels of 8 bytes each, and a mask of up to 12 or
# positions of 16.
_BYTES_PER_TOKEN = 40
_BYTES_PER_LINK = 12
_TENSORS_PER_BATCH = 8  # at most
_slots_by_number: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()  # of this process
_numbers = count()


class MicroBatchLoader:
    """
    Endless micro-batches of one process, step by step, in the order of a
    [`TokenBudgetBatchSampler`].

    This process plans the steps; workers, if any, read, pad and prepare the batches of the steps
    ahead. On Linux they are forks, which share the memory of this process. They live as long as
    successive epochs read from the same table: with BPE-dropout, each epoch has other workers. With
    `pin_memory`, a thread of [`DataLoader`] copies each step to page-locked memory. The thread that
    trains only cuts the step into its tensors.

    `state_dict()` describes the steps that the iterator has returned, however many the workers have
    prepared.

    Args:
        sampler (`TokenBudgetBatchSampler`): The order of the batches. It runs ahead of the
            training.
        pad_token_id (`int`): The padding of sources.
        num_workers (`int`): Worker processes; with 0 this process reads each step when it is
            needed.
        pin_memory (`bool`): Return tensors in page-locked memory, from which a GPU copies while it
            computes.
        prepare: Returns the tensors that the model gets, given the padded ones. Workers call it.
    """

    def __init__(
        self,
        sampler: TokenBudgetBatchSampler,
        pad_token_id: int,
        num_workers: int = 0,
        pin_memory: bool = False,
        prepare: Callable[[Batch], Batch] | None = None,
    ):
        self.pad_token_id = pad_token_id
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.prepare = prepare
        self.sampler = sampler
        self.position = sampler.position  # after the last step that was returned
        # Batches that are planned, but not returned yet
        self._ahead: deque[tuple[list[PlannedBatch], Position]] = deque()

    def __iter__(self) -> Generator[list[MicroBatch], None, None]:
        """Yield the micro-batches of this process for each step.

        Close the iterator to end its workers.
        """
        if self._ahead:  # prepared for an iterator that was dropped
            self.load_state_dict(self.state_dict())
        while True:
            self.sampler.enter_next_epoch()
            for written in self._open(self.sampler.pairs.table):
                planned, self.position = self._ahead.popleft()
                yield [
                    MicroBatch(tensors, batch.pairs, batch.counts, batch.step_target_tokens)
                    for tensors, batch in zip(written.tensors(), planned, strict=True)
                ]

    def _open(self, table: TokenTable) -> DataLoader:
        """Return a loader of the steps until an epoch has another table."""
        batches = self.sampler.batches_per_step // self.sampler.num_replicas
        max_tokens = self.sampler.max_tokens
        size = max_tokens * _BYTES_PER_TOKEN + table.max_links(max_tokens) * _BYTES_PER_LINK
        size += _TENSORS_PER_BATCH * _ALIGNMENT
        # A slot for each step that workers prepare, and for the one that is being returned.
        slots = torch.empty(
            self.num_workers * STEPS_AHEAD_PER_WORKER + 1, batches * size, dtype=torch.uint8
        )
        slots = slots.share_memory_() if self.num_workers else slots
        steps = _Steps(
            table, self.pad_token_id, slots, self.sampler.pad_to_multiple_of, self.prepare
        )
        return DataLoader(
            steps,
            sampler=self._plan_steps(steps),  # type: ignore[arg-type]  # an iterator without a length
            batch_size=None,
            pin_memory=self.pin_memory,
            num_workers=self.num_workers,
            prefetch_factor=STEPS_AHEAD_PER_WORKER if self.num_workers else None,
            worker_init_fn=_start_worker,
            multiprocessing_context=_START_METHOD if self.num_workers else None,
            # Otherwise starting workers would draw from the global one
            generator=torch.Generator(),
        )

    def _plan_steps(self, steps: "_Steps") -> Iterator[tuple[int, list[PlannedBatch]]]:
        """Yield a slot and the rows of each batch for each step, and note what the step will be
        made of.
        """
        for number in count():
            if self.sampler.pairs.table is not steps.table:
                return
            batches = self.sampler.take_step()
            self._ahead.append((batches, self.sampler.position))
            yield number % len(steps.slots), batches
            self.sampler.enter_next_epoch()

    def place(self) -> dict[str, float]:
        """Return the epochs done and, in a run with stages, the number of the stage from 1, for the
        log.
        """
        stage = {"stage": self.position.stage + 1} if len(self.sampler.stages) > 1 else {}
        return {"epoch": self.position.progress, **stage}

    @contextmanager
    def preview(self) -> Iterator[Iterator[list[MicroBatch]]]:
        """Yield the next steps, and return to the place before them at the end of the block."""
        position = self.state_dict()
        with closing(iter(self)) as steps:
            yield steps
        self.load_state_dict(position)

    def state_dict(self) -> dict[str, Any]:
        return self.position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._ahead.clear()
        self.sampler.load_state_dict(state)
        self.position = self.sampler.position


class _Place(NamedTuple):
    """Where a tensor is in a slot, in bytes."""

    start: int
    size: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class _WrittenStep:
    """
    A step that a worker has written to a slot: where the tensors of its batches are.

    Processes exchange these, which a pipe takes whole. Tensors would be handed over by a connection
    to the worker for each, and a killed worker would leave half of a long message, for whose rest
    the reading thread waits for ever.
    """

    def __init__(self, slots: int, slot: int, places: Sequence[dict[str, _Place]]):
        self._slots, self._slot, self._places = slots, slot, places
        self._pinned: torch.Tensor | None = None

    def _read(self) -> torch.Tensor:
        size = max(
            (
                location.start + location.size
                for batch in self._places
                for location in batch.values()
            ),
            default=0,
        )
        return _slots_by_number[self._slots][self._slot, :size]

    def pin_memory(self) -> "_WrittenStep":
        """Copy the step to page-locked memory.

        The thread of [`DataLoader`] that pins calls this method.
        """
        self._pinned = self._read().pin_memory()
        return self

    def tensors(self) -> list[Batch]:
        """Return the tensors of each batch, copied out of the slot."""
        memory = self._read().clone() if self._pinned is None else self._pinned
        batches: list[Batch] = []
        for written in self._places:
            batch: Batch = {}
            for name, location in written.items():
                values = memory[location.start : location.start + location.size]
                batch[name] = values.view(location.dtype).view(location.shape)
            batches.append(batch)
        return batches


class _Steps(Dataset[_WrittenStep]):
    """Steps by their slot and the rows of their batches, written to the slot one tensor after
    another.
    """

    def __init__(
        self,
        table: TokenTable,
        pad_token_id: int,
        slots: torch.Tensor,
        pad_to_multiple_of: int,
        prepare: Callable[[Batch], Batch] | None = None,
    ):
        self.table = table
        self.pad_token_id = pad_token_id
        self.slots = slots
        self.pad_to_multiple_of = pad_to_multiple_of
        self.prepare = prepare
        self._number = next(_numbers)
        _slots_by_number[self._number] = slots

    def __getitem__(self, step: tuple[int, Sequence[PlannedBatch]]) -> _WrittenStep:
        """Write a step to its slot."""
        slot, batches = step
        end, places = 0, []
        for batch in batches:
            if batch.places is None:
                tensors = self.table.pad(batch.rows, self.pad_token_id, self.pad_to_multiple_of)
            else:
                tensors = self.table.pack(batch.rows, batch.places, batch.shape, self.pad_token_id)
            tensors = tensors if self.prepare is None else self.prepare(tensors)
            places.append(dict[str, _Place]())
            for name, tensor in tensors.items():
                location = places[-1][name] = _Place(
                    end, tensor.nbytes, tensor.dtype, tuple(tensor.shape)
                )
                self.slots[slot, end : end + location.size] = (
                    tensor.contiguous().view(-1).view(torch.uint8)
                )
                end = round_up(end + location.size, _ALIGNMENT)
        return _WrittenStep(self._number, slot, places)


def _start_worker(number: int) -> None:
    """Leave signals to the parent process, which ends training in order, and end with the parent.

    Ctrl-C reaches all processes of a terminal, and a scheduler's SIGTERM all processes of a job.
    Without its worker the parent could not finish the step.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigtimedwait"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()


def _watch_parent(parent: int) -> None:
    """End this process when its parent asks for it or has ended: a worker holds the lock of the
    run's folder.
    """
    while True:
        received = signal.sigtimedwait({signal.SIGTERM}, SECONDS_BETWEEN_LOOKS)
        if os.getppid() != parent or (received is not None and received.si_pid == parent):
            os._exit(0)


@contextmanager
def report_lost_workers(advice: str) -> Iterator[None]:
    """Turn the death of a worker, at any place in the block, into one line."""
    try:
        yield
    except RuntimeError as error:  # torch has no other type
        if not str(error).startswith("DataLoader worker"):
            raise
        # The frames hold the loader, and with it the other workers.
        traceback.clear_frames(error.__traceback__)
        reason = str(error).split(". ")[0]
        raise LostProcessError(
            f"A process that prepares batches ended: {reason}. If the system lacks memory, lower "
            f"`dataloader_num_workers`. {advice}"
        ) from error
