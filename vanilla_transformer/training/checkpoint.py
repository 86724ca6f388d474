"""Model folders on disk: written aside and renamed, so that a folder is there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_NAME

_CHECKPOINT_PREFIX = "checkpoint-"


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """
    A fresh folder beside `folder`, on the same disk, whose files move into `folder` once the block ends without an
    error. Each file is renamed into place, so that a reader sees the old or the new one, never half of it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield aside
        if folder.exists():
            for path in sorted(aside.iterdir()):
                os.replace(path, folder / path.name)
        else:
            aside.chmod(0o755)  # mkdtemp's folders are for their owner alone
            os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def save_model_folder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> Path:
    """Writes an ordinary model folder: safetensors, configuration, generation configuration and tokenizer."""
    with written_aside(Path(folder)) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
    return Path(folder)


def checkpoint_folder(output_dir: str | Path, step: int) -> Path:
    """Where the checkpoint of an update lies."""
    return Path(output_dir) / f"{_CHECKPOINT_PREFIX}{step}"


def list_checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoints in a run's folder, oldest first."""
    found = [path for path in Path(output_dir).glob(f"{_CHECKPOINT_PREFIX}*") if path.name.split("-")[-1].isdigit()]
    return sorted(found, key=lambda path: int(path.name.split("-")[-1]))


def delete_all_but_last(output_dir: str | Path, kept: int) -> None:
    """Removes old checkpoints, so that `kept` remain."""
    for path in list_checkpoints(output_dir)[:-kept]:
        shutil.rmtree(path)


def check_output_dir(output_dir: str | Path, overwrite: bool) -> None:
    """
    Raises:
        ValueError: a model (or a checkpoint of one) is there already and must not be overwritten, or the path is a
            file.
    """
    folder = Path(output_dir)
    if folder.is_file():
        raise ValueError(f"`output_dir` must be a folder, but {folder} is a file.")
    holds_model = (folder / SAFE_WEIGHTS_NAME).exists() or list_checkpoints(folder)
    if holds_model and not overwrite:
        raise ValueError(
            f"{folder} already holds a model. Choose another --output_dir, or replace it with --overwrite_output_dir."
        )


def clear_output_dir(output_dir: str | Path) -> None:
    """Removes an earlier run's checkpoints, which would be averaged with the new ones. The model itself stays."""
    for path in list_checkpoints(output_dir):
        shutil.rmtree(path)


def average_state_dicts(state_dicts: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """
    The mean of each parameter (section 6.1), summed in float64, in the type that it had.

    Raises:
        ValueError: there is nothing to average, or names or shapes differ.
    """
    if not state_dicts:
        raise ValueError("There must be at least one checkpoint to average, got none.")
    first = state_dicts[0]
    for other in state_dicts[1:]:
        differing = {name for name in first.keys() | other.keys() if _shape(first, name) != _shape(other, name)}
        if differing:
            raise ValueError(f"Checkpoints must have the same parameters to be averaged; {min(differing)} differs.")
    return {
        name: torch.stack([state[name].double() for state in state_dicts]).mean(dim=0).to(tensor.dtype)
        for name, tensor in first.items()
    }


def _shape(state_dict: dict[str, torch.Tensor], name: str) -> torch.Size | None:
    return state_dict[name].shape if name in state_dict else None


def average_checkpoints(model: PreTrainedModel, folders: Sequence[Path]) -> None:
    """
    Gives `model` the mean of the weights in `folders`.

    Raises:
        ValueError: the weights are not those of this model.
    """
    average = average_state_dicts([load_file(folder / SAFE_WEIGHTS_NAME) for folder in folders])
    missing, unexpected = model.load_state_dict(average, strict=False)
    # A tied weight is in a file once, and one tensor in the model, so that its one copy reaches every place.
    foreign = set(missing) - model.all_tied_weights_keys.keys() | set(unexpected)
    if foreign:
        raise ValueError(f"The checkpoints are of another model: {min(foreign)} is not in both.")
