"""Parse flags and YAML recipes into dataclasses; every mistake is a `ValueError` that names it."""

import json
from argparse import Action, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from vanilla_transformer.yaml_utils import load_yaml

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


_VALUE_NAMES = {int: "INT", float: "FLOAT", str: "TEXT"}


class Parser(HfArgumentParser):
    """
    Raise a `ValueError` for arguments that cannot be parsed, instead of printing the usage and exiting.

    The help lists each flag once, with underscores (dashes work as well), and a default only where there is one.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, formatter_class=HelpFormatter, **kwargs)

    def add_argument(self, *flags: str, **kwargs: Any) -> Action:  # type: ignore[override]
        if flags[0] == "-h":
            return super().add_argument(*flags, **kwargs)
        if kwargs.get("type") is string_to_bool:  # without a value, `bool | None` is True, as `bool` is
            kwargs = {"nargs": "?", "const": True} | kwargs
        if kwargs.get("action") == "store_false":
            kwargs["help"] = f"Turn off --{kwargs['dest']}."
        else:
            kwargs["help"] = _with_default(kwargs.get("help", ""), kwargs.get("default"))
            if kwargs.get("nargs") == "?":
                kwargs["metavar"] = "BOOL"
            elif "choices" not in kwargs:
                kwargs["metavar"] = _VALUE_NAMES.get(kwargs["type"], "TEXT")
        if kwargs.pop("keeps_text", False) and "type" in kwargs:
            kwargs["type"] = partial(_or_text, kwargs["type"])
        return super().add_argument(flags[0], **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.removeprefix('argument ')}. See --help.")

    def parse(self, arguments: Sequence[str]) -> tuple[Any, ...]:
        """Parse flags into the dataclasses."""
        words = [_with_underscores(word) if word.startswith("--") else word for word in arguments]
        *parsed, rest = self.parse_args_into_dataclasses(words, return_remaining_strings=True)
        if rest:
            raise ValueError(f"Every value must follow its flag, got {rest[0]!r} without one.")
        return tuple(parsed)


def _or_text(convert: Callable[[str], Any], text: str) -> Any:
    """Return a value of a type, or the text if it is none of it."""
    try:
        return convert(text)
    except (ValueError, ArgumentTypeError):
        return text


def _with_default(text: str, default: Any) -> str:
    if default is None or default is False or default == "" or "default" in text.lower():
        return text
    return f"{text} (default: %(default)s)"


def _with_underscores(flag: str) -> str:
    name, equals, value = flag[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


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
    return [part for name, value in given.items() for part in (f"--{name}", _as_word(name, value))]


def _as_word(name: str, value: Any) -> str:
    if not isinstance(value, list | dict):
        return str(value)
    try:
        return json.dumps(value)
    except TypeError as error:
        raise ValueError(f"`{name}` must hold text, numbers, lists and mappings only: {error}.") from error
