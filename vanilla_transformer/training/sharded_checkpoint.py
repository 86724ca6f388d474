"""Write sharded checkpoints while training continues."""

import copy
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .checkpoint import ResumeState, save_checkpoint
from .distributed import broadcast_decision


class ShardedCheckpointWriter:
    """Write checkpoints to which each process adds its shards of the optimizer and EMA tensors.

    `save` returns when the tensors are copied; a thread writes them. All processes must call the methods together.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._unfinished: Future[None] | None = None
        # The threads of all processes talk to each other while training does.
        self._group = torch.distributed.new_group(backend="gloo") if torch.distributed.is_initialized() else None

    def save(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        state: ResumeState,
        folder: Path,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to write a checkpoint, after the one before it is complete.

        Args:
            model: A copy, which training does not change.
            then: Called in the main process when the checkpoint is complete.

        Raises:
            FileNotFoundError: a process cannot see the folder that the main process created.
            OSError: the checkpoint before this one could not be written.
        """
        self.wait()
        shards = folder.with_name(f".{folder.name}.shards")
        if self.accelerator.is_main_process:
            shutil.rmtree(shards, ignore_errors=True)
            shards.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        if not shards.is_dir():
            raise FileNotFoundError(
                f"With `sharded_checkpoints` all processes must see the same `output_dir`, but process "
                f"{self.accelerator.process_index} does not see {shards}. Choose a folder on a shared disk, or leave "
                "the option out: then the main process alone writes."
            )
        tensors = {"optimizer": state.optimizer, "ema": state.ema}
        written: Any = dcp.async_save(tensors, checkpoint_id=shards, process_group=self._group)
        tokenizer = copy.deepcopy(tokenizer)  # validation may use it meanwhile

        def complete() -> None:
            save_checkpoint(model, tokenizer, state, folder, shards)
            then()

        self._unfinished = self._thread.submit(self._wait_for_shards, written, shards, complete)

    def _wait_for_shards(self, written: Future[Any], shards: Path, complete: Callable[[], None]) -> None:
        """Wait for the shards of all processes, and complete the checkpoint in the main process."""
        try:
            written.result()
            if self.accelerator.is_main_process:
                complete()
        except dcp.CheckpointException as error:  # no subclass of Exception
            process, (reason, _) = next(iter(error.failures.items()))
            raise OSError(f"Process {process} cannot write its shards to {shards}: {reason}") from error
        finally:
            if self.accelerator.is_main_process:
                shutil.rmtree(shards, ignore_errors=True)

    def wait(self) -> None:
        """Wait until the last checkpoint is complete.

        Raises:
            OSError: it could not be written; the one before it is the last complete one.
        """
        if self._unfinished is None:
            return
        error, self._unfinished = self._unfinished.exception(), None
        if broadcast_decision(self.accelerator, error is not None) or error:
            raise error or OSError("The main process could not write the last checkpoint: look at its messages.")
