"""Learn a LoRA adapter from a translation memory and general text, of which parts are held out."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from vanilla_transformer.data.cleaning_rules import hash_repetition
from vanilla_transformer.data.readers import SentencePair, read_text_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.test_sets import TestSet
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.training.averaging import average_model_folders
from vanilla_transformer.training.initialization import load_converted_model
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.signals import TrainingInterrupted
from vanilla_transformer.training.trainer import train

from .memory import read_pairs, tidy

_LEAST_SOURCES = 200
# A tenth of the memory and a half of general text are held out, and at most so many sources
_MEMORY_PART, _GENERAL_PART, _MOST_HELD_OUT = 10, 2, 500
_WEIGHTS = [1.0, 1.0]  # of the model before training and after it
# Measured in docs/memory.md, in the new domain and in another one
_SETTINGS: dict[str, object] = {
    "lora_rank": 16,
    "learning_rate": 1e-3,
    "num_train_epochs": 5,
    "lr_scheduler": "constant_with_warmup",
    "max_grad_norm": 1,
    "max_tokens": 2048,
    "mixed_precision": "auto",
}


def split_memory(paths: Iterable[str], direction: Direction) -> tuple[list[SentencePair], TestSet]:
    """Return the pairs of a memory to learn from, and a test set of others.

    Of several translations of a source the last one is used.
    """
    pairs = chain.from_iterable(read_pairs(path, direction) for path in paths)
    groups = _group_near_duplicates(pairs)
    if len(groups) < _LEAST_SOURCES:
        raise UserError(
            f"The memory must have {_LEAST_SOURCES} different sources or more to learn from, got "
            f"{len(groups)}. Give more files, or translate with them by `translate --memory`."
        )
    return _hold_out(groups, _MEMORY_PART)


def split_general_text(
    source: str, target: str, most: int, memory_test: TestSet
) -> tuple[list[SentencePair], TestSet]:
    """Return pairs of general text to learn together with a memory, and a test set of others.

    A model that learns both at once forgets less (mixed fine-tuning, Chu et al., 2017).

    Args:
        most: Number of pairs to learn at most.
        memory_test: The test set of the memory, whose sources are left out.
    """
    groups = _group_near_duplicates(read_text_files(source, target))
    for held_out in memory_test.sources:
        groups.pop(_letters_key(held_out), None)
    if len(groups) < _GENERAL_PART:
        raise UserError(
            f"General text must have {_GENERAL_PART} sources or more that the memory does not hold "
            f"out, got {len(groups)}. Give a longer text."
        )
    training, test = _hold_out(groups, _GENERAL_PART)
    return training[:most], test


def _letters_key(source: str) -> bytes:
    return hash_repetition("near_duplicates", SentencePair(source, ""), "")


def _group_near_duplicates(pairs: Iterable[SentencePair]) -> dict[bytes, dict[str, str]]:
    """Group sources that differ in their numbers, case or punctuation, with their translations, by
    a hash of their letters.
    """
    groups = dict[bytes, dict[str, str]]()
    for source, target in pairs:
        groups.setdefault(_letters_key(source), {})[tidy(source)] = tidy(target)
    return groups


def _hold_out(groups: dict[bytes, dict[str, str]], part: int) -> tuple[list[SentencePair], TestSet]:
    """Return the pairs of most groups, and a test set of one pair of each other group.

    The hash of a group decides, so that most groups stay on their side while a text grows.
    """
    ordered = [groups[key] for key in sorted(groups)]
    count = min(len(ordered) // part, _MOST_HELD_OUT)
    training = [SentencePair(*pair) for group in ordered[count:] for pair in group.items()]
    held_out = [next(iter(group.items())) for group in ordered[:count]]
    sources, targets = map(list, zip(*held_out, strict=True))
    return training, TestSet(sources, targets)


def train_adapter(
    model: str,
    training: Sequence[SentencePair],
    direction: Direction,
    folder: Path,
    max_minutes: float,
    threads: int | None,
) -> Path:
    """Train an adapter in a folder, and return the folder of the model with it.

    Its weights are a mean of those before and after training, which forgets less.
    """
    former = folder / "former"
    save_model_folder(*load_converted_model(model), former)
    flags = _SETTINGS | {"init_from": former, "output_dir": folder / "run"}
    flags |= {"max_minutes": max_minutes, "threads": threads}
    flags |= {"source_language": direction.source, "target_language": direction.target}
    for side in ("source", "target"):
        lines = (f"{getattr(pair, side)}\n" for pair in training)
        flags[f"train_{side}"] = write_text_atomically(folder / f"memory.{side}", lines)
    words = list[str]()
    for name, value in flags.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    try:
        run = train(parse_recipe(words))
    except TrainingInterrupted:
        raise KeyboardInterrupt from None  # nothing is left to resume from
    return average_model_folders([former, run], folder / "adapted", _WEIGHTS)
