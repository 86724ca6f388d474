"""Read and write model folders and checkpoints.

A checkpoint is a model folder that training can resume from. Beside the model it holds
`training_state.json`, which describes the run, the tensors of the optimizer, the EMA and LoRA
adapters, and the SHA-256 of every file. The tensors are in `optimizer.safetensors`,
`ema.safetensors` and `adapters.safetensors`, or in `shards/`, which all processes write with
`torch.distributed.checkpoint`.

The folders of `Accelerator.save_state` are no model folders, and hold pickles of the optimizer and
of random states.
"""

import copy
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from vanilla_transformer.errors import MissingFileError, UserFileError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.hashes import find_damage, hash_file, write_hashes
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.files.model_folders import HASHES_FILE
from vanilla_transformer.loading.model_folders import mapping

from .distributed import broadcast_decision, wait_for_processes

logger = logging.getLogger(__name__)

_METADATA_FILE = "training_state.json"
_NOT_OF_MODEL = (
    _METADATA_FILE,
    HASHES_FILE,
    "optimizer.safetensors",
    "ema.safetensors",
    "adapters.safetensors",
)
SHARDS = "shards"
StateDict = dict[str, torch.Tensor]
# Before torch 2.13, a stager closes itself after its first use.
_STAGERS_LAST = torch.__version__ >= "2.13"  # compares numbers


@dataclass
class ResumeState:
    """State that a checkpoint holds beside the model.

    Attributes:
        progress: Values that JSON can hold.
        param_groups: Parameter groups of the optimizer.
        optimizer: Tensors by parameter and kind, such as `lm_head.weight.exp_avg`; full, or sharded
            (`DTensor`).
        ema: Tensors by parameter; empty without an EMA.
        adapters: Tensors by parameter; empty without LoRA.
    """

    progress: dict[str, Any]
    param_groups: list[dict[str, Any]]
    optimizer: StateDict
    ema: StateDict
    adapters: StateDict = field(default_factory=dict)


def save_checkpoint(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    state: ResumeState,
    folder: Path,
    shards: Path | None = None,
    weights: StateDict | None = None,
) -> Path:
    """Write a checkpoint from one process. A checkpoint of the same step is replaced.

    It is complete when it appears under its name.

    Args:
        shards: A folder with the tensors of optimizer and EMA, which moves into the checkpoint.
            Without it, the tensors of `state` are written.
        weights: A copy of the model's weights, which training does not change. Without it, they are
            the model's own.
    """
    with atomic_folder(folder, replace=True) as temporary:
        model.save_pretrained(temporary, state_dict=weights)
        tokenizer.save_pretrained(temporary)
        if shards is not None:
            os.replace(shards, temporary / SHARDS)
        else:
            save_file(state.optimizer, temporary / "optimizer.safetensors")
            for name, tensors in (("ema", state.ema), ("adapters", state.adapters)):
                if tensors:
                    save_file(tensors, temporary / f"{name}.safetensors")
        record = {"progress": state.progress, "param_groups": state.param_groups}
        (temporary / _METADATA_FILE).write_text(
            json.dumps(record, indent=2) + "\n", encoding="utf-8"
        )
        write_hashes(temporary)
    return folder


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is a checkpoint of this package, whole, damaged or empty."""
    known = any((folder / name).is_file() for name in (_METADATA_FILE, HASHES_FILE))
    return known or (folder.is_dir() and not any(folder.iterdir()))


def load_progress(folder: Path) -> dict[str, Any]:
    """Read `ResumeState.progress` of a checkpoint."""
    return json.loads((folder / _METADATA_FILE).read_text(encoding="utf-8"))["progress"]


def load_resume_state(folder: Path, like: ResumeState) -> ResumeState:
    """Read the state that a checkpoint holds beside the model.

    Args:
        like: The state of the run that resumes. A sharded checkpoint is read into its tensors, each
            process its own shards, however many processes wrote it.

    Returns:
        Full tensors of a plain checkpoint; otherwise the tensors of `like`. Without an EMA in
        `like` there is none.
    """
    record = json.loads((folder / _METADATA_FILE).read_text(encoding="utf-8"))
    if (folder / SHARDS).is_dir():
        stored = dcp.FileSystemReader(folder / SHARDS).read_metadata().state_dict_metadata
        has_ema = any(name.startswith("ema.") for name in stored)
        tensors = {"optimizer": like.optimizer, "ema": like.ema if has_ema else {}}
        dcp.load(tensors, checkpoint_id=folder / SHARDS)
        optimizer, ema, adapters = tensors["optimizer"], tensors["ema"], {}
    else:
        optimizer = _load_tensors(folder / "optimizer.safetensors")
        ema, adapters = (
            _load_tensors(folder / name) if (folder / name).exists() else {}
            for name in ("ema.safetensors", "adapters.safetensors")
        )
    return ResumeState(
        record["progress"], record["param_groups"], optimizer, ema if like.ema else {}, adapters
    )


def load_model_weights(folder: str | Path) -> StateDict:
    """Read the weights of a model folder, from one file or several."""
    return {
        name: tensor
        for path in weight_files(folder)
        for name, tensor in _load_tensors(path).items()
    }


def _load_tensors(path: Path) -> StateDict:
    try:
        with mapping(path):
            return load_file(path)
    except SafetensorError as error:
        raise UserFileError(f"{path} is truncated or damaged: {error}. Copy it again.") from error


def weight_files(folder: str | Path) -> list[Path]:
    """List the files of a model folder's weights: one file, or the files that its index names."""
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(f"There is no model folder {folder}.")
    if (folder / SAFE_WEIGHTS_NAME).is_file():
        return [folder / SAFE_WEIGHTS_NAME]
    if not (folder / SAFE_WEIGHTS_INDEX_NAME).is_file():
        raise MissingFileError(
            f"{folder} holds no {SAFE_WEIGHTS_NAME}. Name folders of models or checkpoints."
        )
    index = read_json(folder / SAFE_WEIGHTS_INDEX_NAME)
    files = [folder / name for name in sorted(set(index["weight_map"].values()))]
    for path in files:
        if not path.is_file():
            raise MissingFileError(
                f"{folder} is incomplete: {path.name} is missing. Copy the folder again."
            )
    return files


def copy_model(checkpoint: Path, folder: Path) -> None:
    """Write the model of a checkpoint to a folder, with hashes."""
    with atomic_folder(folder) as temporary:
        for path in checkpoint.iterdir():
            if path.is_file() and path.name not in _NOT_OF_MODEL:
                shutil.copyfile(path, temporary / path.name)
        write_hashes(temporary)


def checkpoint_folder(output_dir: str | Path, step: int) -> Path:
    return Path(output_dir) / f"checkpoint-{step}"


def list_checkpoints(output_dir: str | Path, prefix: str = "checkpoint-") -> list[Path]:
    """List the checkpoints of a run, oldest first; or other folders that are numbered by step, such
    as `best-`.
    """
    folders = [
        path
        for path in Path(output_dir).glob(f"{prefix}*")
        if re.fullmatch(r"\d+", path.name[len(prefix) :])
    ]
    return sorted(folders, key=step_of)


def step_of(folder: Path) -> int:
    return int(folder.name.split("-")[-1])


def find_latest_checkpoint(output_dir: str | Path) -> Path | None:
    """Return the newest whole checkpoint, or None. Warn of each damaged one after it."""
    for folder in reversed(list_checkpoints(output_dir)):
        damage = find_damage(folder)
        if damage is None:
            return folder
        logger.warning(
            "%s is damaged (%s). Falling back to the checkpoint before it.", folder, damage
        )
    return None


def describe_newest(output_dir: str | Path) -> str:
    """Return the name of the newest checkpoint, whole or damaged, with a hash by which another one
    of its step differs.
    """
    for folder in list_checkpoints(output_dir)[-1:]:
        hashes = folder / HASHES_FILE
        digest = hash_file(hashes)[:8] if hashes.is_file() else "without hashes"
        return f"{folder.name} ({digest})"
    return "no checkpoint"


def delete_folder(path: Path) -> None:
    """Rename a folder, then delete it, so that an interrupted deletion leaves no partial checkpoint
    by its name.
    """
    doomed = path.with_name(f".{path.name}.deleted")
    os.replace(path, doomed)
    shutil.rmtree(doomed)


class CheckpointWriter:
    """Write checkpoints from the main process, or sharded ones to which each process adds its
    shards.

    `save` returns when the tensors are copied to memory of the CPU; a thread writes them. From
    torch 2.13 on, the next checkpoint uses the same memory. For a GPU it is pinned. All processes
    must call the methods together.

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
            torch.distributed.new_group(backend="gloo")
            if sharded and torch.distributed.is_initialized()
            else None
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
            model: Model with its weights, in the main process.
            state: Tensors of this process, which are ignored if it writes nothing.
            then: Called in the main process when the checkpoint is complete.

        Returns:
            A future that is done when this process has written its part.
        """
        self.wait()
        shards = folder.with_name(f".{folder.name}.shards") if self.sharded else None
        if shards is not None:
            if self.accelerator.is_main_process:
                shutil.rmtree(shards, ignore_errors=True)
                shards.mkdir(parents=True)
            wait_for_processes(self.accelerator)
        tensors: dict[str, StateDict] = {}
        if self.accelerator.is_main_process:
            tensors = {"model": model.state_dict(), "adapters": state.adapters}
        if self.accelerator.is_main_process or self.sharded:
            tensors |= {"optimizer": state.optimizer, "ema": state.ema}
        if not _STAGERS_LAST:
            self._stager = DefaultStager(self._staging)
        copied: Any = self._stager.stage(tensors)
        weights = copied.pop("model", None)
        state = replace(state, **copied)

        def write() -> None:
            """Write the shards of this process, if any, and the rest of the checkpoint in the main
            process.
            """
            try:
                if shards is not None:
                    tensors = {"optimizer": state.optimizer, "ema": state.ema}
                    dcp.save(
                        tensors,
                        checkpoint_id=shards,
                        process_group=self._group,
                        no_dist=self._group is None,
                    )
                if self.accelerator.is_main_process:
                    save_checkpoint(model, self._tokenizer, state, folder, shards, weights)
                    then()
            except dcp.CheckpointException as error:  # no subclass of Exception
                process, (reason, _) = next(iter(error.failures.items()))
                raise UserFileError(
                    f"Process {process} cannot write its shards to {shards}: {reason}"
                ) from error
            finally:
                if shards is not None and self.accelerator.is_main_process:
                    shutil.rmtree(shards, ignore_errors=True)

        self._unfinished = self._thread.submit(write)
        return self._unfinished

    def wait(self) -> None:
        if self._unfinished is None:
            return
        error, self._unfinished = self._unfinished.exception(), None
        if broadcast_decision(self.accelerator, error is not None) or error:
            raise error or OSError(
                "The main process could not write the last checkpoint: look at its messages."
            )

    def close(self) -> None:
        """Wait for the thread of this process alone, also after an error of training, and free the
        memory.
        """
        self._thread.shutdown()
        if self._unfinished is not None and (error := self._unfinished.exception()) is not None:
            logger.error("The last checkpoint could not be written: %s", error)
        self._stager.close()
