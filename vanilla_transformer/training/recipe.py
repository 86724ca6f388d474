"""Read YAML recipes; every mistake is a `ValueError` that names it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vanilla_transformer.user_input import load_yaml

# Old names of flags and recipe keys, and what they are called now.
RENAMED = {
    "attention": "layer_types",
    "cross_attention": "cross_attention_type",
    "lsh_rounds": "num_hashes",
    "lsh_buckets": "num_buckets",
    "lsh_chunk": "lsh_attn_chunk_length",
    "memory_length": "mem_len",
    "feed_forward_chunk": "chunk_size_feed_forward",
    "torch_compile": "compile",
}
# Former flags and recipe keys: the value that training has used since, which was the default, and what to do.
_CONFIGURATION = "It remains a field of the configuration, for converted models. Leave it out"
REMOVED: dict[str, tuple[Any, str]] = {
    "hash_seed": (0, "Set `seed` for other runs"),
    "lsh_seed": (0, "Set `seed` for other runs"),
    "lm_head_bias": (False, _CONFIGURATION),
    "scale_embedding": (True, _CONFIGURATION),
    "sinusoid_layout": ("interleaved", _CONFIGURATION),
    "source_eos": (True, _CONFIGURATION),
}


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML recipe.

    Raises:
        OSError: the file does not exist.
        ValueError: the file is not YAML, is not a mapping of names, has a key twice, or has an alias.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no recipe {path}. Recipes are YAML files such as recipes/demo.yaml.")
    try:
        recipe = load_yaml(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"The recipe {path} must be YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(f"The recipe {path} must hold `key: value` lines, got {type(recipe).__name__}.")
    for key in recipe:
        if not isinstance(key, str):
            raise ValueError(f"Every key of the recipe {path} must be a name, got {key!r}.")
    return recipe


def flatten_sections(recipe: Mapping[str, Any], sections: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of a recipe, which stand in sections such as `model` or at its top level.

    Args:
        sections: The section of each known key.

    Raises:
        ValueError: a section is no mapping of names, or a key is in another section than its own, or twice.
    """
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        is_section = name in sections.values()
        for key, each in (_read_section(name, value) if is_section else {name: value}).items():
            key = key.replace("-", "_")
            if is_section and sections.get(key, name) != name:
                raise ValueError(f"`{key}` must be in the section `{sections[key]}`, got it in `{name}`. Move it.")
            if key in flat:
                raise ValueError(f"`{key}` must be in a recipe once, got it twice. Delete one of the two.")
            flat[key] = each
    return flat


def _read_section(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise ValueError(f"The section `{name}` must hold `key: value` lines, got {type(value).__name__}.")
    for key in value or ():
        if not isinstance(key, str):
            raise ValueError(f"Every key of the section `{name}` must be a name, got {key!r}.")
    return value or {}


def check_renamed(names: Iterable[str], what: str) -> None:
    """Raise a `ValueError` for the first name that has been renamed or removed, with its new name or what to do."""
    for name in names:
        key = name.replace("-", "_")
        successor = RENAMED.get(key)
        if successor is not None:
            raise ValueError(f"The {what} {name!r} is now called {successor!r}.")
        for removed in {key, key.removeprefix("no_")} & REMOVED.keys():
            value, advice = REMOVED[removed]
            raise ValueError(f"The {what} {name!r} no longer exists: training uses {value}. {advice}.")


def as_flags(recipe: Mapping[str, Any]) -> list[str]:
    """Return a recipe as flags. Lists and mappings become JSON.

    Raises:
        ValueError: a value has no form in JSON, such as a date.
    """
    given = {name: value for name, value in recipe.items() if value is not None}
    return [f"--{name}={_as_word(name, value)}" for name, value in given.items()]


def _as_word(name: str, value: Any) -> str:
    if not isinstance(value, list | dict):
        return str(value)
    try:
        return json.dumps(value)
    except TypeError as error:
        raise ValueError(f"`{name}` must hold text, numbers, lists and mappings only: {error}.") from error
