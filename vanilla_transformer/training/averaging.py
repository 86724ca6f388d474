"""Average weights: over the last checkpoints (section 6.1), and exponentially during training."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import find_damage
from vanilla_transformer.files.model_folders import has_weights
from vanilla_transformer.files.outputs import check_output_dir
from vanilla_transformer.loading.model_folders import save_model_folder

from .checkpoint import StateDict, is_checkpoint, load_model_weights, weight_files


def average_state_dicts(
    state_dicts: Iterable[StateDict], weights: Iterable[float] = repeat(1.0)
) -> StateDict:
    """Return the mean of each parameter (section 6.1), summed in float64, in its own dtype.

    One set of parameters at a time is in memory beside the sum.

    Args:
        weights: A positive number for each set of parameters; by default all count the same.
    """
    total: StateDict = {}
    types: dict[str, torch.dtype] = {}
    sum_of_weights = 0.0
    for state, weight in zip(state_dicts, weights, strict=False):  # the default weights never end
        if not total:
            total = {
                name: torch.zeros_like(tensor, dtype=torch.float64)
                for name, tensor in state.items()
            }
            types = {name: tensor.dtype for name, tensor in state.items()}
        ours = {name: tensor.shape for name, tensor in total.items()}
        theirs = {name: tensor.shape for name, tensor in state.items()}
        if differing := ours.items() ^ theirs.items():
            name = min(name for name, _ in differing)
            raise UserError(
                f"Checkpoints must have the same parameters to be averaged; {name} differs."
            )
        for name, tensor in state.items():
            total[name].add_(tensor, alpha=weight)
        sum_of_weights += weight
    if not total:
        raise UserError("There must be at least one checkpoint to average, got none.")
    return {name: (tensor / sum_of_weights).to(types[name]) for name, tensor in total.items()}


def load_weights(model: PreTrainedModel, weights: StateDict) -> None:
    """Load the weights of a safetensors file, which holds tied weights once."""
    missing, unexpected = model.load_state_dict(weights, strict=False)
    # Tied weights share one tensor in the model, so that the one copy sets them all.
    foreign = set(missing) - model.all_tied_weights_keys.keys() | set(unexpected)
    if foreign:
        raise UserError(f"The weights belong to another model: {min(foreign)} is not in both.")


def average_checkpoints(
    model: PreTrainedModel, folders: Sequence[Path], weights: Iterable[float] = repeat(1.0)
) -> None:
    """Load the mean of the parameters in `folders`, which are whole, into `model`."""
    load_weights(model, average_state_dicts(map(load_model_weights, folders), weights))


def check_whole(folders: Sequence[Path]) -> None:
    """Refuse to average checkpoints of which one is damaged."""
    for folder in folders:
        damage = find_damage(folder) if is_checkpoint(folder) else None
        if damage is not None:
            hint = "Restore it from a copy, or delete it to average the others"
            raise UserError(
                f"{folder} is damaged ({damage}), and its weights are part of the mean. {hint}."
            )


def average_model_folders(
    folders: Sequence[str | Path], output_dir: str | Path, weights: Sequence[float] | None = None
) -> Path:
    """Write the mean of several model folders as a model folder, with configuration and tokenizer
    of the last one.

    Args:
        weights: A positive number for each folder; by default all count the same.
    """
    from vanilla_transformer.decoding.ensemble import check_weights
    from vanilla_transformer.decoding.pretrained import (
        check_same_vocabulary,
        load_pretrained,
        load_tokenizer,
    )

    paths = [Path(folder) for folder in folders]
    checked_weights = check_weights(weights, len(folders), "weights")
    for path in paths:
        weight_files(path)
    if has_weights(Path(output_dir)):
        raise UserError(
            f"{output_dir} already holds a model. Choose another --output_dir, or delete it first."
        )
    check_output_dir(output_dir)
    model = load_pretrained(AutoModelForSeq2SeqLM, paths[-1])
    tokenizers = [load_tokenizer(path) for path in paths]
    for path, tokenizer in zip(paths[1:], tokenizers[1:], strict=True):
        check_same_vocabulary(tokenizers[0], tokenizer, path, "Models to average")
    check_whole(paths)
    average_checkpoints(model, paths, checked_weights)
    return save_model_folder(model, tokenizers[-1], output_dir)


class ExponentialMovingAverage:
    """Track `average ← decay · average + (1 - decay) · weights` after every step.

    Differs from the paper, which averages the last checkpoints.

    Args:
        parameters: Parameters of the model by name; sharded ones are averaged shard by shard.
        decay (`float`): In (0, 1); averages over about `1 / (1 - decay)` steps.
    """

    def __init__(self, parameters: dict[str, torch.Tensor], decay: float):
        self._parameters = parameters
        self._average = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        self._blend = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(self) -> None:
        # The number of averaged models, the third argument, is for plain means.
        self._blend(list(self._average.values()), list(self._parameters.values()), 0)

    def state_dict(self) -> StateDict:
        return self._average

    @torch.no_grad()
    def load_state_dict(self, state: StateDict) -> None:
        for name, average in self._average.items():
            average.copy_(state[name])
