"""The files of a model folder that are published, and a copy of only these."""

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
from vanilla_transformer.configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
from vanilla_transformer.configuration_vanilla_transformer_long import (
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
)
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.utils.file_utils import TOKENIZER_FILES, read_json

from .run_records import CURVE

CARD_NAME = "README.md"
# The entries of each model type's config.json that name its code.
REMOTE_CODE: dict[str, dict[str, Any]] = {
    config.model_type: config.remote_code
    for config in (
        VanillaTransformerConfig,
        VanillaTransformerDecoderConfig,
        VanillaTransformerEncoderConfig,
        VanillaTransformerLongConfig,
        VanillaTransformerLongDecoderConfig,
    )
}
# The folder of the modules that are saved with a checkpoint.
INSTALLED_CODE = Path(inspect.getfile(VanillaTransformerConfig)).parent
# A model folder needs all of the first names, and one name of each of the other two groups: sharded weights have an
# index, and converted models may have the tokenizer of Marian or M2M-100 (SentencePiece) or of FSMT.
_REQUIRED_NAMES = (CONFIG_NAME, GENERATION_CONFIG_NAME, "tokenizer_config.json")
_WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)
# Files that other libraries write with pickle, which runs arbitrary code when it is loaded.
PICKLE_SUFFIXES = (".bin", ".ckpt", ".h5", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
# Pickles that transformers' Trainer saves beside a model, which are not published.
TRAINER_STATE = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth")

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_OPTIONAL_NAMES = (
    *(CARD_NAME, CURVE, "LICENSE", "special_tokens_map.json"),
    *("target.spm", "vocab.json", "target_vocab.json", "vocab-src.json", "vocab-tgt.json"),
)


def code_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the modules that this package saves with a model of the type of `folder`.

    A folder of an unknown type counts as an encoder-decoder.
    """
    return _code_of_type(_model_type(folder))


def _model_type(folder: Path) -> str:
    with suppress(OSError):
        config = read_json(folder / CONFIG_NAME)
        if isinstance(config, dict) and config.get("model_type") in [*REMOTE_CODE]:
            return str(config["model_type"])
    return VanillaTransformerConfig.model_type


@cache
def _code_of_type(model_type: str) -> tuple[str, ...]:
    code = REMOTE_CODE[model_type]
    classes = [*code["auto_map"].values(), *(each["impl"] for each in code.get("custom_pipelines", {}).values())]
    modules = {INSTALLED_CODE / f"{path.split('.')[0]}.py" for path in classes}
    return tuple(sorted({Path(path).name for each in modules for path in (each, *get_relative_import_files(each))}))


def publishable_files(folder: str | Path) -> list[Path]:
    """Return the files of `folder` that belong to a published model, sorted by name.

    Checkpoints, metrics and recipes are not published; the card summarizes them and shows the learning curve.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(f"There is no model folder {folder}.")
    code = code_names(folder)
    files = [
        path for path in sorted(folder.iterdir()) if path.is_file() and (path.name in code or _is_known(path.name))
    ]
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{path} must be a file of the folder, but it is a link out of it. Copy the file there.")
    return files


def required_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the files that every model of the type of `folder` has; an encoder does not generate."""
    if _model_type(folder) == VanillaTransformerEncoderConfig.model_type:
        return tuple(name for name in _REQUIRED_NAMES if name != GENERATION_CONFIG_NAME)
    return _REQUIRED_NAMES


def missing_files(folder: str | Path) -> list[str]:
    """Return the names of required files that `folder` lacks."""
    names = {path.name for path in publishable_files(folder)}
    missing = [group[0] for group in (_WEIGHTS, TOKENIZER_FILES) if not names & set(group)]
    folder = Path(folder)
    return missing + [name for name in (*required_names(folder), *code_names(folder)) if name not in names]


def stage(folder: str | Path, destination: Path) -> Path:
    """Copy the publishable files of `folder` into the new folder `destination`."""
    files = publishable_files(folder)
    destination.mkdir(parents=True)
    for path in files:
        shutil.copyfile(path, destination / path.name)
    return destination


def _is_known(name: str) -> bool:
    known = {*_WEIGHTS, *TOKENIZER_FILES, *_REQUIRED_NAMES, *_OPTIONAL_NAMES}
    return name in known or _SHARD.fullmatch(name) is not None


_CODE_KEYS = ("auto_map", "custom_pipelines")
# transformers downloads compiled functions if the value of one of these is the name of a repository.
_KERNEL_KEYS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_ADAPTER_CONFIG = "adapter_config.json"
_GENERATION_FOLDER = "custom_generate"


class CodeReference(NamedTuple):
    """A reference to code other than this package's.

    Attributes:
        text: The file, and the reference in it.
        is_inside: The code is in the folder, not in another folder or repository.
    """

    text: str
    is_inside: bool


def foreign_code(folder: Path) -> list[CodeReference]:
    """Return every reference of `folder` to code other than the modules that this package saves with a model."""
    own_modules = code_names(folder)
    found = [reference for path in sorted(folder.glob("*.json")) for reference in _read_references(path)]
    found += [CodeReference(path.name, True) for path in sorted(folder.glob("*.py")) if path.name not in own_modules]
    if (folder / _GENERATION_FOLDER).exists():
        found.append(CodeReference(f"{_GENERATION_FOLDER}/", True))
    return found


def _read_references(path: Path) -> Iterator[CodeReference]:
    content = read_json(path)
    if path.name == _ADAPTER_CONFIG:  # transformers loads the base model that it names, not the model of the folder
        yield CodeReference(f"{path.name} (merge the adapter into the model and delete the file)", False)
    if path.name == CONFIG_NAME and isinstance(content, dict):
        own = REMOTE_CODE.get(str(content.get("model_type")))
        if own is None:
            yield CodeReference(f"{path.name} (model_type: {content.get('model_type')!r})", True)
        content = {key: value for key, value in content.items() if own is None or own.get(key) != value}
    for key, value in walk_json(content):
        text = json.dumps(value)
        if key in _CODE_KEYS and isinstance(value, str | list | dict):
            yield CodeReference(f"{path.name} ({key}: {text[:200]})", not any(mark in text for mark in ("--", "/")))
        elif key in _KERNEL_KEYS and "/" in text:
            yield CodeReference(f"{path.name} ({key}: {text[:200]})", False)


def walk_json(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key of a JSON value and of all values in it, with its value."""
    left = [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from value.items()
            left += value.values()
        elif isinstance(value, list):
            left += value
