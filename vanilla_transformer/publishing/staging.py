"""The files of a model folder that are published, a copy of only these, and references of a folder
to other code.
"""

import inspect
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_decoder import (
    VanillaTransformerDecoderConfig,
)
from vanilla_transformer.configuration_vanilla_transformer_encoder import (
    VanillaTransformerEncoderConfig,
)
from vanilla_transformer.configuration_vanilla_transformer_long import (
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
)
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.json_files import read_json, walk_json
from vanilla_transformer.files.model_folders import TOKENIZER_FILES
from vanilla_transformer.loading.model_files import KERNEL_KEYS

from .run_records import CURVE

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

CARD_NAME = "README.md"
# The task of `pipeline()` by the end of the model class, and the auto class that loads it.
TASKS = {
    "ForConditionalGeneration": ("translation", "AutoModelForSeq2SeqLM"),
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM"),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
}
# The entries of each model type's config.json that name its code.
_CONFIGS = (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
)
REMOTE_CODE: dict[str, dict[str, Any]] = {
    config.model_type: config.remote_code for config in _CONFIGS
}
# The folder of the modules that are saved with a checkpoint.
INSTALLED_CODE = Path(inspect.getfile(VanillaTransformerConfig)).parent
# A model folder needs all of the first names, and one name of each of the other two groups: sharded
# weights have an index, and converted models may have the tokenizer of Marian or M2M-100
# (SentencePiece) or of FSMT.
_REQUIRED_NAMES = (CONFIG_NAME, GENERATION_CONFIG_NAME, "tokenizer_config.json")
_WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_OPTIONAL_NAMES = (
    *(CARD_NAME, CURVE, "LICENSE", "special_tokens_map.json"),
    *("target.spm", "vocab.json", "target_vocab.json", "vocab-src.json", "vocab-tgt.json"),
)
_IMPORT = re.compile(rb"^[ \t]*+(?:from|import)[ \t]++vanilla_transformer\b", re.MULTILINE)
_CODE_KEYS = ("auto_map", "custom_pipelines")
# transformers downloads compiled functions if the value of one of these is the name of a
# repository.


def find_task(config: "PreTrainedConfig") -> tuple[str, str]:
    """Return the task and the auto class of a model.

    A class of a user may have any name if its models translate: the package has no other
    encoder-decoder with a head.
    """
    name = next(iter(config.architectures or []), "")
    for ending, task in TASKS.items():
        if name.endswith(ending):
            return task
    if name and not name.endswith("Model") and config.is_encoder_decoder:
        return TASKS["ForConditionalGeneration"]
    endings = ", ".join(TASKS)
    raise UserError(
        f"`architectures` must name a model that ends with one of {endings}, got {name!r}."
    )


def _model_type(folder: Path) -> str:
    """Return the type of a model of this package; a folder of an unknown type counts as an
    encoder-decoder.
    """
    with suppress(OSError):
        config = read_json(folder / CONFIG_NAME)
        if isinstance(config, dict) and config.get("model_type") in [*REMOTE_CODE]:
            return str(config["model_type"])
    return VanillaTransformerConfig.model_type


def code_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the modules that this package saves with a model of the type of
    `folder`.
    """
    code = REMOTE_CODE[_model_type(folder)]
    classes = [*code["auto_map"].values()]
    for pipeline in code.get("custom_pipelines", {}).values():
        classes.append(pipeline["impl"])
    modules = {INSTALLED_CODE / f"{name.split('.')[0]}.py" for name in classes}
    names = {module.name for module in modules}
    for module in modules:
        for path in get_relative_import_files(module):
            names.add(Path(path).name)
    return tuple(sorted(names))


def publishable_files(folder: str | Path) -> list[Path]:
    """Return the files of `folder` that belong to a published model, sorted by name.

    Checkpoints, metrics and recipes are not published; the card summarizes them and shows the
    learning curve.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(f"There is no model folder {folder}.")
    known = {*_WEIGHTS, *TOKENIZER_FILES, *_REQUIRED_NAMES, *_OPTIONAL_NAMES}
    known |= {*code_names(folder)}
    files: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and (path.name in known or _SHARD.fullmatch(path.name)):
            files.append(path)
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserError(
                f"{path} must be a file of the folder, but it is a link out of it. Copy the file "
                "there."
            )
    return files


def missing_files(folder: str | Path) -> list[str]:
    """Return the names of required files that `folder` lacks; an encoder does not generate."""
    folder = Path(folder)
    names = {path.name for path in publishable_files(folder)}
    missing = [group[0] for group in (_WEIGHTS, TOKENIZER_FILES) if not names & set(group)]
    if _model_type(folder) == VanillaTransformerEncoderConfig.model_type:
        names.add(GENERATION_CONFIG_NAME)
    for name in (*_REQUIRED_NAMES, *code_names(folder)):
        if name not in names:
            missing.append(name)
    return missing


def stage(folder: str | Path, destination: Path) -> Path:
    """Copy the publishable files of `folder` into the new folder `destination`, and add the code
    that it lacks.
    """
    files = publishable_files(folder)
    destination.mkdir(parents=True)
    for path in files:
        shutil.copyfile(path, destination / path.name)
    if (destination / CONFIG_NAME).exists() and not any(destination.glob("*.py")):
        _add_code(destination)
    return destination


def _add_code(folder: Path) -> None:
    """Add this package's modules to the copy of a model of ours that carries no code, such as
    models/en-de.
    """
    path, card = folder / CONFIG_NAME, folder / CARD_NAME
    content, before = None, hash_file(path)
    with suppress(OSError):  # a check names the damage
        content = read_json(path)
    if not isinstance(content, dict) or "auto_map" in content:
        return
    if content.get("model_type") not in [*REMOTE_CODE]:
        return
    names = code_names(folder)
    for name in names:
        shutil.copyfile(INSTALLED_CODE / name, folder / name)
    content |= REMOTE_CODE[content["model_type"]]
    config = json.dumps(content, indent=2, sort_keys=True)
    path.write_text(config + "\n", encoding="utf-8")
    if card.exists():
        rows = [f"{name}` | `{hash_file(folder / name)}" for name in (CONFIG_NAME, *names)]
        text = card.read_text(encoding="utf-8")
        text = text.replace(f"{CONFIG_NAME}` | `{before}", "` |\n| `".join(rows))
        card.write_text(text, encoding="utf-8")


def refuse_own_class(folder: Path) -> None:
    """Refuse a model whose code in the folder imports this package, which a published model does
    without.
    """
    for path in sorted(folder.glob("*.py")):
        if path.name not in code_names(folder) and _IMPORT.search(path.read_bytes()):
            raise UserError(
                f"A published model must load without this package, but {path} imports it. A class "
                "of your own needs the package: upload both by `model.push_to_hub`."
            )


def foreign_code(folder: Path) -> list[tuple[str, bool]]:
    """Return every reference of `folder` to code other than the modules that this package saves
    with a model.

    A reference is a text, and whether its code is in another folder or repository.
    """
    ours = code_names(folder)
    references: list[tuple[str, bool]] = []
    for path in sorted(folder.glob("*.py")):
        if path.name not in ours:
            references.append((path.name, False))
    if (folder / "custom_generate").exists():
        references.append(("custom_generate/", False))
    for path in sorted(folder.glob("*.json")):
        content = read_json(path)
        # transformers loads the base model that it names, not the folder's.
        if path.name == "adapter_config.json":
            hint = "merge the adapter into the model and delete the file"
            references.append((f"{path.name} ({hint})", True))
        if path.name == CONFIG_NAME and isinstance(content, dict):
            model_type = str(content.get("model_type"))
            if model_type not in REMOTE_CODE:
                references.append((f"{path.name} (model_type: {model_type!r})", False))
            for key, value in REMOTE_CODE.get(model_type, {}).items():
                if key in content and content[key] == value:
                    del content[key]
        for key, value in walk_json(content):
            text = json.dumps(value)
            is_elsewhere = "/" in text or "--" in text
            is_code = key in _CODE_KEYS and isinstance(value, str | list | dict)
            if is_code or (key in KERNEL_KEYS and "/" in text):
                references.append((f"{path.name} ({key}: {text[:200]})", is_elsewhere))
    return references
