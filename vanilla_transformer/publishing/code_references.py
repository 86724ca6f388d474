"""Find the references of a model folder to Python code, which transformers imports when it loads the folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import CONFIG_NAME

from .staging import REMOTE_CODE, code_names

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
    """Return every reference of `folder` to code other than the modules that this package saves with a model.

    Raises:
        ValueError: a JSON file cannot be read, so its references are unknown.
    """
    own_modules = code_names(folder)
    found = [reference for path in sorted(folder.glob("*.json")) for reference in _read_references(path)]
    found += [CodeReference(path.name, True) for path in sorted(folder.glob("*.py")) if path.name not in own_modules]
    if (folder / _GENERATION_FOLDER).exists():
        found.append(CodeReference(f"{_GENERATION_FOLDER}/", True))
    return found


def _read_references(path: Path) -> Iterator[CodeReference]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not valid JSON ({error})") from error
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
