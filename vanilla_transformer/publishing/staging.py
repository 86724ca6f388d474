"""Which files of a model folder others get, and a copy of just those."""

import inspect
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

from huggingface_hub.utils.sha import sha_fileobj
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig

CARD_NAME = "README.md"
# The directory of the modules that travel.
INSTALLED_CODE = Path(inspect.getfile(VanillaTransformerConfig)).parent
# A folder lacks none of these, nor its code, and has one of each of the others: weights in several files have an index
# in place of the one file, and tokenizers of converted models are those of Marian (SentencePiece) and FSMT.
_REQUIRED_NAMES = (CONFIG_NAME, GENERATION_CONFIG_NAME, "tokenizer_config.json")
_WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)
_TOKENIZERS = ("tokenizer.json", "source.spm", "merges.txt")
# What other libraries write as pickle, which runs what it says as soon as it is read.
PICKLE_SUFFIXES = (".bin", ".ckpt", ".h5", ".joblib", ".pickle", ".pkl", ".pt", ".pth")

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_OPTIONAL_NAMES = (
    *(CARD_NAME, "LICENSE", "special_tokens_map.json"),
    *("target.spm", "vocab.json", "target_vocab.json", "vocab-src.json", "vocab-tgt.json"),
)


def code_names(folder: Path) -> tuple[str, ...]:
    """
    The modules that the library copies beside the model of `folder`: those of its classes, and what these import. The
    paper's model is assumed where the folder does not say.
    """
    classes = VanillaTransformerConfig.travelling_code["auto_map"]
    with suppress(OSError, ValueError):
        classes = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8")).get("auto_map", classes)
    modules = {INSTALLED_CODE / f"{path.split('.')[0]}.py" for path in classes.values()}
    known = [module for module in modules if module.exists()]
    return tuple(sorted({Path(path).name for each in known for path in (each, *get_relative_import_files(each))}))


def publishable_files(folder: str | Path) -> list[Path]:
    """
    The files of `folder` that belong to a published model, by name. Checkpoints, metrics and recipes stay at home: the
    card tells what they hold.

    Raises:
        NotADirectoryError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(f"There must be a model folder to publish, got {folder}, which is none.")
    code = code_names(folder)
    return [path for path in sorted(folder.iterdir()) if path.is_file() and (path.name in code or _belongs(path.name))]


def missing_files(folder: str | Path) -> list[str]:
    """Names of what a published model cannot do without and `folder` does not have."""
    names = {path.name for path in publishable_files(folder)}
    first_of_none = [choice[0] for choice in (_WEIGHTS, _TOKENIZERS) if not names & set(choice)]
    required = (*_REQUIRED_NAMES, *code_names(Path(folder)))
    return [*first_of_none, *(name for name in required if name not in names)]


def stage(folder: str | Path, destination: Path) -> Path:
    """Copies what is to be published of `folder` into the fresh folder `destination`."""
    files = publishable_files(folder)
    destination.mkdir(parents=True)
    for path in files:
        shutil.copyfile(path, destination / path.name)
    return destination


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return sha_fileobj(file).hex()


def _belongs(name: str) -> bool:
    known = {*_WEIGHTS, *_TOKENIZERS, *_REQUIRED_NAMES, *_OPTIONAL_NAMES}
    return name in known or _SHARD.fullmatch(name) is not None
