"""Flags and YAML recipes as they are written, each mistake in them an error that names it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser


class Parser(HfArgumentParser):
    """Raises a `ValueError` for what cannot be parsed, in place of writing how to use it and leaving."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.removeprefix('argument ')}. See --help.")

    def parse(self, arguments: Sequence[str]) -> tuple[Any, ...]:
        """Flags as dataclasses."""
        *parsed, rest = self.parse_args_into_dataclasses(list(arguments), return_remaining_strings=True)
        if rest:
            raise ValueError(f"Every value must follow its flag, got {rest[0]!r} without one.")
        return tuple(parsed)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """
    Keys and values of a YAML recipe.

    Raises:
        OSError: there is no such file.
        ValueError: it is not YAML, or not a mapping, or has a key twice.
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


def as_flags(recipe: Mapping[str, Any]) -> list[str]:
    """The flags that a recipe stands for."""
    return [part for name, value in recipe.items() if value is not None for part in (f"--{name}", _as_word(value))]


def _as_word(value: Any) -> str:
    """A value as a flag takes it: lists and mappings in JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML as it is defined, where no key comes twice in a mapping; PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(problem=f"the key {twice!r} is there twice{node.start_mark}")
        return super().construct_mapping(node, deep)
