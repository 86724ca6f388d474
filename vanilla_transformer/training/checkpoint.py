"""Model folders and checkpoints on disk."""

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from vanilla_transformer.file_utils import atomic_folder

logger = logging.getLogger(__name__)

_CHECKPOINT_PREFIX = "checkpoint-"
_BEST_PREFIX = "best-"
_STATE_FILE = "training_state.json"
# How the names of the files of tensors begin: `optimizer.safetensors`, or `optimizer-00001-of-00002.safetensors`.
MODEL, OPTIMIZER, EMA = "model", "optimizer", "ema"


def save_model_folder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> Path:
    """Writes an ordinary model folder: safetensors, configuration, generation configuration and tokenizer."""
    with atomic_folder(Path(folder)) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
    return Path(folder)


@dataclass
class Progress:
    """Where a run stands, apart from tensors: everything that a restart needs to go on as if nothing had happened."""

    step: int = 0
    minutes: float = 0.0
    order: dict[str, Any] = field(default_factory=dict)
    num_processes: int = 1
    # Validations so far that counted for the choice of the best, best first: {"step": …, "score": …}.
    best: list[dict[str, float]] = field(default_factory=list)
    validations_without_improvement: int = 0
    schedule: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
    # Whether the checkpoint is there only because the run was interrupted. It makes way for the next one, so that what
    # is averaged in the end is what would have been without the interruption.
    passing: bool = False
    scaler: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


@dataclass
class TrainingState:
    """
    What a checkpoint holds beside the model: progress, the optimizer's `state` (tensors by parameter and by what they
    are) and `param_groups`, and the moving average.
    """

    progress: Progress
    optimizer: dict[str, Any]
    ema: dict[str, torch.Tensor] = field(default_factory=dict)


def save_checkpoint(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, state: TrainingState, folder: str | Path
) -> Path:
    """Writes a model folder that training can go on from. A checkpoint of that update is replaced."""
    folder = Path(folder)
    with atomic_folder(folder) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        save_file(flatten_state(state.optimizer["state"]), aside / f"{OPTIMIZER}.safetensors")
        if state.ema:
            save_file(state.ema, aside / f"{EMA}.safetensors")
        write_record(aside, state.progress, state.optimizer["param_groups"], {})
    return folder


def write_record(folder: Path, progress: Progress, param_groups: list[dict[str, Any]], sizes: dict[str, int]) -> None:
    """Writes what is no tensor, and how large each file is: as it is found here, but for those that `sizes` has."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name not in sizes} | sizes
    record = {"progress": asdict(progress), "param_groups": param_groups, "bytes": sizes}
    (folder / _STATE_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def load_training_state(folder: str | Path) -> TrainingState:
    """What a checkpoint holds beside the model, however many files that is in."""
    folder = Path(folder)
    record = json.loads((folder / _STATE_FILE).read_text(encoding="utf-8"))
    state = _unflatten(_load_tensors(folder, OPTIMIZER, record["bytes"]))
    optimizer = {"state": state, "param_groups": record["param_groups"]}
    return TrainingState(Progress(**record["progress"]), optimizer, _load_tensors(folder, EMA, record["bytes"]))


def _load_tensors(folder: Path, kind: str, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """The tensors of one kind, of all the files of a checkpoint that they are in."""
    files = [name for name in names if re.fullmatch(rf"{kind}(-\d+-of-\d+)?\.safetensors", name)]
    return {name: tensor for file in files for name, tensor in load_file(folder / file).items()}


def load_model_weights(folder: str | Path) -> dict[str, torch.Tensor]:
    """
    The weights of a model folder, of one file or of several.

    Raises:
        FileNotFoundError: there are none, or a file of them is missing.
    """
    return {name: tensor for path in weight_files(folder) for name, tensor in load_file(path).items()}


def weight_files(folder: str | Path) -> list[Path]:
    """
    The files of a model folder's weights: one, or those that its index names.

    Raises:
        FileNotFoundError: there are none, or one of them is missing.
    """
    folder = Path(folder)
    if (folder / SAFE_WEIGHTS_NAME).is_file():
        return [folder / SAFE_WEIGHTS_NAME]
    if not (folder / SAFE_WEIGHTS_INDEX_NAME).is_file():
        raise FileNotFoundError(f"{folder} holds no {SAFE_WEIGHTS_NAME}. Name folders of models or checkpoints.")
    index = json.loads((folder / SAFE_WEIGHTS_INDEX_NAME).read_text(encoding="utf-8"))
    files = [folder / name for name in sorted(set(index["weight_map"].values()))]
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"{folder} is not whole: {path.name} is missing. Copy the folder anew.")
    return files


def flatten_state(state: dict[str, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One name for each tensor: that of the parameter, then what it is of it, such as `exp_avg`."""
    return {f"{name}.{kind}": tensor for name, tensors in state.items() for kind, tensor in tensors.items()}


def _unflatten(tensors: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    state: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        parameter, _, kind = name.rpartition(".")
        state.setdefault(parameter, {})[kind] = tensor
    return state


def latest_resumable(output_dir: str | Path) -> Path | None:
    """
    The newest checkpoint that training can go on from. One that is not whole (a copy or a disk that broke off) is
    passed over with a warning, and the one before it is taken.
    """
    for folder in reversed(list_checkpoints(output_dir)):
        damage = _damage(folder)
        if damage is None:
            return folder
        logger.warning("%s is not whole (%s). Going back to the checkpoint before it.", folder, damage)
    return None


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None where nothing is."""
    try:
        sizes = json.loads((folder / _STATE_FILE).read_text(encoding="utf-8"))["bytes"]
    except FileNotFoundError:
        return f"{_STATE_FILE} is missing"
    except (ValueError, KeyError):
        return f"{_STATE_FILE} is cut off"
    for name, size in sizes.items():
        found = (folder / name).stat().st_size if (folder / name).exists() else None
        if found != size:
            return f"{name} is missing" if found is None else f"{name} has {found} bytes, not {size}"
    return None


def checkpoint_folder(output_dir: str | Path, step: int) -> Path:
    """Where the checkpoint of an update lies."""
    return Path(output_dir) / f"{_CHECKPOINT_PREFIX}{step}"


def best_folder(output_dir: str | Path, step: int) -> Path:
    """Where the model of an update lies that was among the best at a validation."""
    return Path(output_dir) / f"{_BEST_PREFIX}{step}"


def list_checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoints in a run's folder, oldest first."""
    return _numbered_folders(output_dir, _CHECKPOINT_PREFIX)


def _numbered_folders(output_dir: str | Path, prefix: str) -> list[Path]:
    found = [path for path in Path(output_dir).glob(f"{prefix}*") if path.name.removeprefix(prefix).isdigit()]
    return sorted(found, key=_number)


def _number(folder: Path) -> int:
    return int(folder.name.split("-")[-1])


def keep_last_checkpoints(output_dir: str | Path, kept: int) -> None:
    """Removes old checkpoints, so that `kept` remain."""
    for path in list_checkpoints(output_dir)[:-kept]:
        delete_folder(path)


def delete_checkpoint(output_dir: str | Path, step: int) -> None:
    """Removes the checkpoint of an update, if there is one."""
    if checkpoint_folder(output_dir, step).exists():
        delete_folder(checkpoint_folder(output_dir, step))


def keep_best_models(output_dir: str | Path, steps: set[int]) -> None:
    """Removes the models that are no longer among the best: all but those of the updates `steps`."""
    for path in _numbered_folders(output_dir, _BEST_PREFIX):
        if _number(path) not in steps:
            delete_folder(path)


def forget_folders_after(output_dir: str | Path, step: int) -> None:
    """Removes what belongs to later updates than `step`, from which a run goes on."""
    for prefix in (_CHECKPOINT_PREFIX, _BEST_PREFIX):
        for path in _numbered_folders(output_dir, prefix):
            if _number(path) > step:
                delete_folder(path)


def delete_folder(path: Path) -> None:
    """Renames before it deletes, so that a deletion that is cut off leaves no half of a checkpoint under its name."""
    doomed = path.with_name(f".{path.name}.deleted")
    os.replace(path, doomed)
    shutil.rmtree(doomed)


def check_output_dir(output_dir: str | Path, overwrite: bool) -> None:
    """
    Raises:
        ValueError: a finished model is there already and must not be overwritten, or the path is of a file.
        PermissionError: nothing can be written there.
    """
    folder = Path(output_dir)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"`output_dir` must be a folder, but {there} is a file.")
    if not os.access(there, os.W_OK):
        raise PermissionError(
            f"`output_dir` must be a folder that can be written to, but {there} cannot. Choose another --output_dir."
        )
    if (folder / SAFE_WEIGHTS_NAME).exists() and not overwrite:
        raise ValueError(
            f"{folder} already holds a model. Choose another --output_dir, or replace it with --overwrite_output_dir."
        )


def clear_remains(output_dir: str | Path) -> None:
    """Removes what a run that was killed left half-written or half-deleted beside its checkpoints."""
    for prefix in (_CHECKPOINT_PREFIX, _BEST_PREFIX):
        for path in Path(output_dir).glob(f".{prefix}*"):
            shutil.rmtree(path, ignore_errors=True)
