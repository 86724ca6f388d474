"""
Checkpoints that all processes write together: each a share of the tensors, so that none ever holds all of them.

A share is of whole tensors, gathered one at a time from the shards of all processes. So what is on disk is the same
for any number of processes but for the cut between files, and transformers reads the model as it reads every one that
is in several files.
"""

import json
import os
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from .checkpoint import EMA, MODEL, OPTIMIZER, Progress, delete_folder, flatten_state, write_record
from .sharding import optimizer_state, whole_tensor
from .train_state import Learner

Tensors = dict[str, torch.Tensor]


def save_sharded_checkpoint(
    learner: Learner, tokenizer: PreTrainedTokenizerBase, progress: Progress, folder: Path
) -> Path:
    """
    Writes what `save_checkpoint` does, in as many files as there are processes. All must call it together; the folder
    has its name when the last of them has written. What a failure leaves goes when the run is started again.

    Raises:
        FileNotFoundError: a process does not see the folder that the main one has made.
    """
    accelerator = learner.accelerator
    aside = _make_aside(learner, tokenizer, folder)
    optimizer = optimizer_state(learner.core, learner.optimizer.optimizer)
    sizes = _write_share(accelerator, MODEL, dict(learner.core.named_parameters()), aside)
    sizes |= _write_share(accelerator, OPTIMIZER, flatten_state(optimizer["state"]), aside)
    sizes |= _write_share(accelerator, EMA, {} if learner.ema is None else learner.ema.state_dict(), aside)
    if accelerator.is_main_process:
        write_record(aside, progress, optimizer["param_groups"], sizes)
        if folder.exists():
            delete_folder(folder)
        os.replace(aside, folder)
    accelerator.wait_for_everyone()
    return folder


def deal(sizes: dict[str, int], shares: int) -> list[list[str]]:
    """The names of each share, about the same size altogether: from the largest on, each to the least share."""
    names: list[list[str]] = [[] for _ in range(shares)]
    totals = [0] * shares
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = totals.index(min(totals))
        names[least].append(name)
        totals[least] += sizes[name]
    return names


def _make_aside(learner: Learner, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """A folder beside `folder`, the same for all processes: a model's, but for the weights."""
    aside = folder.with_name(f".{folder.name}.shards")
    if learner.accelerator.is_main_process:
        shutil.rmtree(aside, ignore_errors=True)
        learner.whole.save_pretrained(aside, state_dict={})
        (aside / SAFE_WEIGHTS_NAME).unlink(missing_ok=True)
        tokenizer.save_pretrained(aside)
    learner.accelerator.wait_for_everyone()
    if not aside.is_dir():
        raise FileNotFoundError(
            f"With `sharded_checkpoints` all processes must see one `output_dir`, but process "
            f"{learner.accelerator.process_index} does not see {aside}. Choose a folder on a disk that they share, or "
            "leave the option out: the main process writes alone then."
        )
    return aside


def _write_share(accelerator: Accelerator, kind: str, tensors: Tensors, aside: Path) -> dict[str, int]:
    """Each process writes its share of `tensors`. Returns the bytes of the files of all."""
    number = accelerator.num_processes
    shares = deal({name: tensor.numel() for name, tensor in tensors.items()}, number)
    own, written = _gather(tensors, set(shares[accelerator.process_index])), {}
    if own:
        path = aside / _file_name(kind, accelerator.process_index, number)
        save_file(own, path, metadata={"format": "pt"})
        written[path.name] = path.stat().st_size
    if kind == MODEL and accelerator.is_main_process:
        _write_index(tensors, shares, aside)
    return {name: size for each in gather_object([written]) for name, size in each.items()}


def _gather(tensors: Tensors, names: set[str]) -> Tensors:
    """Those of `names`, whole and on the CPU. All processes gather all tensors, one at a time, in the same order."""
    gathered = {}
    for name in sorted(tensors):
        tensor = whole_tensor(tensors[name].detach())
        if name in names:
            gathered[name] = tensor.cpu().contiguous()
    return gathered


def _file_name(kind: str, share: int, shares: int) -> str:
    return f"{kind}-{share + 1:05d}-of-{shares:05d}.safetensors"


def _write_index(tensors: Tensors, shares: list[list[str]], aside: Path) -> None:
    """Which weight is in which file, as transformers reads it."""
    files = {name: _file_name(MODEL, share, len(shares)) for share, names in enumerate(shares) for name in names}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(files.items()))}
    (aside / SAFE_WEIGHTS_INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
