"""Parse flags and YAML recipes into dataclasses; every mistake is a `ValueError` that names it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser

# Old names of flags and recipe keys, and what they are called now.
RENAMED = {
    "attention": "layer_types",
    "cross_attention": "cross_attention_type",
    "lsh_rounds": "num_hashes",
    "lsh_buckets": "num_buckets",
    "lsh_chunk": "lsh_attn_chunk_length",
    "lsh_seed": "hash_seed",
    "memory_length": "mem_len",
    "feed_forward_chunk": "chunk_size_feed_forward",
}


class Parser(HfArgumentParser):
    """Raise a `ValueError` for arguments that cannot be parsed, instead of printing the usage and exiting."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.removeprefix('argument ')}. See --help.")

    def parse(self, arguments: Sequence[str]) -> tuple[Any, ...]:
        """Parse flags into the dataclasses."""
        *parsed, rest = self.parse_args_into_dataclasses(list(arguments), return_remaining_strings=True)
        if rest:
            raise ValueError(f"Every value must follow its flag, got {rest[0]!r} without one.")
        return tuple(parsed)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML recipe.

    Raises:
        OSError: the file does not exist.
        ValueError: the file is not YAML, is not a mapping, or has a key twice.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no recipe {path}. Recipes are YAML files such as recipes/demo.yaml.")
    try:
        recipe = yaml.load(Path(path).read_text(encoding="utf-8"), _UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"The recipe {path} must be YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(f"The recipe {path} must hold `key: value` lines, got {type(recipe).__name__}.")
    return recipe


def check_renamed(names: Iterable[str], what: str) -> None:
    """Raise a `ValueError` for the first name that has been renamed, with its new name."""
    for name in names:
        successor = RENAMED.get(name.replace("-", "_"))
        if successor is not None:
            raise ValueError(f"The {what} {name!r} is now called {successor!r}.")


def as_flags(recipe: Mapping[str, Any]) -> list[str]:
    """Return a recipe as flags. Lists and mappings become JSON."""
    return [part for name, value in recipe.items() if value is not None for part in (f"--{name}", _as_word(value))]


def _as_word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuse a key that a mapping has twice, as the YAML specification does. PyYAML would use the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(problem=f"the key {twice!r} is there twice{node.start_mark}")
        return super().construct_mapping(node, deep)
