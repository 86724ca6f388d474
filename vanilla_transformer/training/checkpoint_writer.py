"""Write checkpoints while training continues."""

import copy
import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .checkpoint import ResumeState, StateDict, save_checkpoint
from .distributed import broadcast_decision, wait_for_processes

logger = logging.getLogger(__name__)

# Before torch 2.13, a stager closes itself after its first use.
_STAGERS_LAST = torch.__version__ >= "2.13"  # compares numbers


class CheckpointWriter:
    """Write checkpoints from the main process, or sharded ones to which each process adds its shards.

    `save` returns when the tensors are copied to memory of the CPU; a thread writes them. From torch 2.13 on,
    the next checkpoint uses the same memory. For a GPU it is pinned. All processes must call the methods together.

    Args:
        sharded: Each process writes its shards of the optimizer and EMA tensors.
    """

    def __init__(self, accelerator: Accelerator, tokenizer: PreTrainedTokenizerBase, sharded: bool):
        self.accelerator = accelerator
        self.sharded = sharded
        self._tokenizer = copy.deepcopy(tokenizer)  # validation may use it while the thread does
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._unfinished: Future[None] | None = None
        on_gpu = accelerator.device.type == "cuda"
        self._staging = StagingOptions(on_gpu, False, False, False)
        self._stager = DefaultStager(self._staging)
        # The threads of all processes talk to each other while training does.
        self._group = (
            torch.distributed.new_group(backend="gloo") if sharded and torch.distributed.is_initialized() else None
        )

    def save(
        self,
        model: PreTrainedModel,
        state: ResumeState,
        folder: Path,
        then: Callable[[], None] = lambda: None,
    ) -> Future[None]:
        """Begin to write a checkpoint, after the one before it is complete.

        Args:
            model: In the main process, the model with its weights.
            state: Tensors of this process, which are ignored if it writes nothing.
            then: Called in the main process when the checkpoint is complete.

        Returns:
            A future that is done when this process has written its part.

        Raises:
            OSError: the checkpoint before this one could not be written.
        """
        self.wait()
        shards = self._create_shards_folder(folder) if self.sharded else None
        tensors: dict[str, StateDict] = {}
        if self.accelerator.is_main_process:
            tensors = {"model": model.state_dict(), "adapters": state.adapters}
        if self.accelerator.is_main_process or self.sharded:
            tensors |= {"optimizer": state.optimizer, "ema": state.ema}
        if not _STAGERS_LAST:
            self._stager = DefaultStager(self._staging)
        copied: Any = self._stager.stage(tensors)
        weights = copied.pop("model", None)
        self._unfinished = self._thread.submit(
            self._write, model, weights, replace(state, **copied), folder, shards, then
        )
        return self._unfinished

    def _create_shards_folder(self, folder: Path) -> Path:
        shards = folder.with_name(f".{folder.name}.shards")
        if self.accelerator.is_main_process:
            shutil.rmtree(shards, ignore_errors=True)
            shards.mkdir(parents=True)
        wait_for_processes(self.accelerator)
        return shards

    def _write(
        self,
        model: PreTrainedModel,
        weights: StateDict | None,
        state: ResumeState,
        folder: Path,
        shards: Path | None,
        then: Callable[[], None],
    ) -> None:
        """Write the shards of this process, if any, and the rest of the checkpoint in the main process."""
        try:
            if shards is not None:
                tensors = {"optimizer": state.optimizer, "ema": state.ema}
                dcp.save(tensors, checkpoint_id=shards, process_group=self._group, no_dist=self._group is None)
            if self.accelerator.is_main_process:
                save_checkpoint(model, self._tokenizer, state, folder, shards, weights)
                then()
        except dcp.CheckpointException as error:  # no subclass of Exception
            process, (reason, _) = next(iter(error.failures.items()))
            raise OSError(f"Process {process} cannot write its shards to {shards}: {reason}") from error
        finally:
            if shards is not None and self.accelerator.is_main_process:
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

    def close(self) -> None:
        """Wait for the thread of this process alone, also after an error of training, and free the memory."""
        self._thread.shutdown()
        if self._unfinished is not None and (error := self._unfinished.exception()) is not None:
            logger.error("The last checkpoint could not be written: %s", error)
        self._stager.close()
