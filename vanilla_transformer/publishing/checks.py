"""The gate: what must hold of a model folder before others get it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import ModelCard
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as library_logging

from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline

from . import behaviour
from .behaviour import BEHAVIOUR_NAMES, Failed, outcome
from .card import hashes_in_card
from .staging import (
    CARD_NAME,
    INSTALLED_CODE,
    PICKLE_SUFFIXES,
    code_names,
    missing_files,
    publishable_files,
    sha256,
)

_SENTENCES = ("A man is sleeping.", "Two dogs run across the green grass.", "Ein Mann schläft.", "1 2 3")
# What the card's metadata must say for the Hub to show the model where it belongs.
_METADATA = ("language", "license", "library_name", "pipeline_tag")


class Outcome(NamedTuple):
    """What one check found."""

    name: str
    passed: bool
    detail: str


def check_folder(folder: str | Path, trust_remote_code: bool = False) -> list[Outcome]:
    """
    Checks a model folder as it would be published: its files, and what the model does when it is loaded in a fresh
    process that has transformers but not this package.

    Args:
        trust_remote_code: Run the folder's code where it is not that of this package.

    Raises:
        OSError: there is no such folder.
    """
    folder = Path(folder)
    publishable_files(folder)
    found = [Outcome(**outcome(name, check, folder)) for name, check in _FILE_CHECKS.items()]
    code = Outcome(**outcome("code", _check_code, folder, trust_remote_code))
    if not code.passed:
        return [*found, code, *_not_run("the folder's code")]
    return [*found, code, *_check_in_a_fresh_process(folder)]


def failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [one for one in outcomes if not one.passed]


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for a terminal, a line each."""
    width = max(len(one.name) for one in outcomes)
    return "\n".join(f"{'ok  ' if one.passed else 'FAIL'}  {one.name:<{width}}  {one.detail}" for one in outcomes)


def _check_files(folder: Path) -> str:
    missing = missing_files(folder)
    if missing:
        raise Failed(f"there is no {', '.join(missing)}")
    return f"{len(publishable_files(folder))} files to publish"


def _check_pickle(folder: Path) -> str:
    pickles = [path.name for path in sorted(folder.iterdir()) if path.suffix in PICKLE_SUFFIXES]
    if pickles:
        raise Failed(f"{', '.join(pickles)} may hold pickle, which runs code when it is read; delete it")
    return "none"


def _check_weights(folder: Path) -> str:
    """Each tensor of the model is in the files once, as large as the model has it, and finite."""
    paths = [path for path in publishable_files(folder) if path.suffix == ".safetensors"]
    if not paths:
        raise Failed("there are no safetensors")
    shapes: dict[str, torch.Size] = {}
    for path in paths:
        for name, tensor in _tensors(path):
            if not torch.isfinite(tensor).all():
                raise Failed(f"{name} in {path.name} holds values that are not finite")
            shapes[name] = tensor.shape
    _compare_shapes(shapes, _expected_shapes(folder))
    return f"{sum(shape.numel() for shape in shapes.values()):,} parameters, all finite"


def _tensors(path: Path) -> Any:
    try:
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                yield name, weights.get_tensor(name)
    except SafetensorError as error:
        raise Failed(f"{path.name} is cut off or damaged ({error})") from error


def _expected_shapes(folder: Path) -> dict[str, torch.Size]:
    """The tensors that the configuration calls for, tied ones once."""
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.from_pretrained(folder))
    tied = model.all_tied_weights_keys
    return {name: tensor.shape for name, tensor in model.state_dict().items() if name not in tied}


def _compare_shapes(found: dict[str, torch.Size], expected: dict[str, torch.Size]) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            raise Failed(f"{name} is not in the files")
        if name not in expected:
            raise Failed(f"{name} is in the files, but the configuration has no such tensor, or ties it to another")
        if found[name] != expected[name]:
            raise Failed(f"{name} is {tuple(found[name])}, the configuration has {tuple(expected[name])}")


def _check_hashes(folder: Path) -> str:
    """The card names each file with its SHA-256, and they are what it says."""
    if not (folder / CARD_NAME).exists():
        raise Failed("there is no card that lists the files")
    listed = hashes_in_card((folder / CARD_NAME).read_text(encoding="utf-8"))
    files = [path for path in publishable_files(folder) if path.name != CARD_NAME]
    for path in files:
        if path.name not in listed:
            raise Failed(f"the card does not list {path.name}; render it again")
        if listed[path.name] != sha256(path):
            raise Failed(f"{path.name} is not the file that the card lists; render it again, or restore the file")
    gone = listed.keys() - {path.name for path in files}
    if gone:
        raise Failed(f"the card lists {min(gone)}, which is not there; render it again")
    return f"{len(files)} files as the card lists them"


def _check_card(folder: Path) -> str:
    if not (folder / CARD_NAME).exists():
        raise Failed(f"there is no {CARD_NAME}; render it with `vanilla-transformer render-card`")
    card = ModelCard.load(folder / CARD_NAME)
    lacking = [name for name in _METADATA if not getattr(card.data, name, None)]
    if lacking:
        raise Failed(f"the metadata lacks {', '.join(lacking)}")
    if card.data.pipeline_tag != "translation":
        raise Failed(f"`pipeline_tag` must be 'translation', got {card.data.pipeline_tag!r}")
    unfilled = re.search(r"\{\{.*?\}\}|\[More Information Needed\]", card.text)
    if unfilled:
        raise Failed(f"a place of the template is not filled: {unfilled.group()}")
    return f"{', '.join(card.data.language)}; {len(card.data.eval_results or [])} scores"


def _check_generation_config(folder: Path) -> str:
    GenerationConfig.from_pretrained(folder).validate(strict=True)
    return "valid"


def _check_code(folder: Path, trust_remote_code: bool) -> str:
    """It is run by the checks that follow, so that it has to be this package's, or trusted."""
    differing = [
        name
        for name in code_names(folder)
        if not (folder / name).exists() or (folder / name).read_bytes() != (INSTALLED_CODE / name).read_bytes()
    ]
    if differing and not trust_remote_code:
        raise Failed(
            f"{', '.join(differing)} is not that of this package. Save the model again with this package, or let the "
            "folder's own code be run and published with --trust_remote_code"
        )
    return "the folder's own, trusted" if differing else "that of this package"


_FILE_CHECKS: dict[str, Callable[[Path], str]] = {
    "files": _check_files,
    "no pickle": _check_pickle,
    "weights": _check_weights,
    "generation config": _check_generation_config,
    "card": _check_card,
    "hashes": _check_hashes,
}


def _check_in_a_fresh_process(folder: Path) -> list[Outcome]:
    """What `behaviour.py` finds, and whether translations are the same there as here."""
    with tempfile.TemporaryDirectory() as modules:
        process = subprocess.run(
            [sys.executable, behaviour.__file__, str(folder.resolve())],
            input=json.dumps(_SENTENCES),
            capture_output=True,
            text=True,
            cwd=modules,
            # The folder's code is copied there before it is imported; the user's cache would outlive this process.
            env={**os.environ, "HF_MODULES_CACHE": modules, "HF_HUB_OFFLINE": "1"},
        )
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        return [Outcome("stands alone", False, last[0]), *_not_run("the check before")[1:]]
    answer = json.loads(process.stdout)
    found = [Outcome(**one) for one in answer["outcomes"]]
    if answer["translations"] is None:
        return [*found, *_not_run("'stands alone'")[1:]]
    return [*found, Outcome(**outcome("same here", _check_translations, folder, answer["translations"]))]


def _check_translations(folder: Path, translations: Sequence[str]) -> str:
    """What this package makes of the folder, against what the fresh process did."""
    library_logging.disable_progress_bar()
    try:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        translate = TranslationPipeline(model, AutoTokenizer.from_pretrained(folder), task="translation")
    finally:
        library_logging.enable_progress_bar()
    here = [answer["translation_text"] for answer in translate(list(_SENTENCES))]
    for sentence, one, other in zip(_SENTENCES, here, translations, strict=True):
        if one != other:
            raise Failed(f"{sentence!r} becomes {one!r} with this package and {other!r} without it")
    return f"{len(here)} sentences, translated with and without this package"


def _not_run(why: str) -> list[Outcome]:
    names = ("stands alone", *BEHAVIOUR_NAMES, "same here")
    return [Outcome(name, False, f"not run, since {why} failed") for name in names]
