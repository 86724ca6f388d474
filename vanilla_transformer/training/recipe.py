"""
Parse the recipe of a training run: a YAML file, flags over it, and the launcher's settings where both have none.

Every mistake is a `ValueError` that names it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from vanilla_transformer.data.data_arguments import named_files
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.utils.input_files import check_pipes, is_pipe, read_input
from vanilla_transformer.utils.resources import describe_recipes, find_recipe
from vanilla_transformer.utils.text_files import decode_text
from vanilla_transformer.utils.user_input import check_names, load_yaml

from .parser import Parser, format_table
from .recipe_checks import check_recipe
from .run_arguments import BATCH_SIZES, KEEP, OF_NEW_TOKENIZERS, RECIPE_PARTS, SECTIONS, Recipe


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML recipe."""
    if not (Path(path).is_file() or is_pipe(path)):
        raise MissingFileError(f"There is no recipe {path}. Recipes are YAML files such as recipes/demo.yaml.")
    text = decode_text(read_input(path), f"The recipe {path}")
    try:
        recipe = load_yaml(text)
    except UserError as error:
        raise UserError(f"The recipe {path} must be YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise UserError(f"The recipe {path} must hold `key: value` lines, got {type(recipe).__name__}.")
    for key in recipe:
        if not isinstance(key, str):
            raise UserError(f"Every key of the recipe {path} must be a name, got {key!r}.")
    return recipe


def flatten_sections(recipe: Mapping[str, Any], sections: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of a recipe, which stand in sections such as `model` or at its top level.

    Args:
        sections: The section of each known key.
    """
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        is_section = name in sections.values()
        for key, each in (_read_section(name, value) if is_section else {name: value}).items():
            key = key.replace("-", "_")
            if is_section and sections.get(key, name) != name:
                raise UserError(f"`{key}` must be in the section `{sections[key]}`, got it in `{name}`. Move it.")
            if key in flat:
                raise UserError(f"`{key}` must be in a recipe once, got it twice. Delete one of the two.")
            flat[key] = each
    return flat


def _read_section(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise UserError(f"The section `{name}` must hold `key: value` lines, got {type(value).__name__}.")
    for key in value or ():
        if not isinstance(key, str):
            raise UserError(f"Every key of the section `{name}` must be a name, got {key!r}.")
    return value or {}


def as_flags(recipe: Mapping[str, Any]) -> list[str]:
    """Return a recipe as flags. Lists and mappings become JSON."""
    given = {name: value for name, value in recipe.items() if value is not None}
    return [f"--{name}={_as_word(name, value)}" for name, value in given.items()]


def _as_word(name: str, value: Any) -> str:
    if not isinstance(value, list | dict):
        return str(value)
    try:
        return json.dumps(value)
    except TypeError as error:
        raise UserError(f"`{name}` must hold text, numbers, lists and mappings only: {error}.") from error


# The keys that `--help` shows; `--help_all` shows all.
MAIN_KEYS = [
    "train_source",
    "train_target",
    "validation_source",
    "validation_target",
    "dataset",
    "vocab_size",
    "max_tokens",
    "d_model",
    "dropout",
    "max_steps",
    "max_minutes",
    "mixed_precision",
    "output_dir",
    "dry_run",
    "init_from",
]
RECIPE = {"RECIPE": "Name of a recipe below, or a YAML file. Its keys are these flags, which override them."}


def parse_recipe(arguments: Sequence[str], program: str | None = None) -> Recipe:
    """Parse `[recipe] [--flag value …]`, and resolve it with the settings of the launcher.

    The recipe is a YAML file or the name of a packaged one, such as `small`. Flags override it. The launcher, such as
    `accelerate launch` with its file, gives the number of processes and what flags and recipe leave out; the defaults
    give the rest.
    """
    return parse_recipe_with({}, arguments, program, MAIN_KEYS)[0]


def parse_recipe_with(
    further: Mapping[str, type[Any]], arguments: Sequence[str], program: str | None, main: Sequence[str]
) -> tuple[Recipe, Any]:
    """Parse a recipe that may also have the fields of a dataclass, in a section of this name. See [`parse_recipe`].

    Args:
        further: The dataclass, by the name of the section; or nothing.
        main: Keys that `--help` shows.
    """
    sections = {name: (part,) for name, part in further.items()} | SECTIONS
    titles = {part: name for name, parts in sections.items() for part in parts}
    notes = f"recipes:\n{format_table(describe_recipes())}"
    usage = f"{program or 'parse_recipe'} [RECIPE] [--flag value ...]"
    parser = Parser([*titles], usage, RECIPE, main, titles, notes)
    flags, words = parser.read(arguments)
    # The file is read as flags, so that both obey the same rules.
    values = _put_over(parser.read(as_flags(read_keys(words, sections)))[0], flags)
    parsed = parser.build(_add_launcher(values))
    by_part = dict(zip(titles, parsed, strict=True))
    recipe = Recipe(*[*(by_part[part] for part in RECIPE_PARTS), frozenset(values)])
    check_recipe(recipe)
    check_pipes([*words, *named_files(recipe.data)])
    return recipe, parsed[0]


def read_keys(words: Sequence[str], sections: Mapping[str, tuple[type[Any], ...]] | None = None) -> dict[str, Any]:
    """Return the keys and values of the recipe that a command names, or none if it names no recipe.

    Args:
        words: The arguments of the command besides its flags.
        sections: The dataclasses whose fields are the keys, by section; by default the ones of training.
    """
    if len(words) > 1:
        raise UserError(f"Name one recipe, and give each value after its flag, got {' '.join(words[:3])!r}.")
    section_of, hints = dict[str, str](), dict[str, Any]()
    for name, parts in (SECTIONS if sections is None else sections).items():
        for part in parts:
            section_of |= {item.name: name for item in fields(part)}
            hints |= get_type_hints(part)
    recipe = flatten_sections(read_recipe(find_recipe(words[0])), section_of) if words else {}
    check_names(recipe, {*section_of}, "recipe key")
    for key, value in recipe.items():  # many a key would take the text of a list
        kinds = {get_origin(kind) or kind for kind in (hints.get(key), *get_args(hints.get(key)))}
        if isinstance(value, list | dict) and kinds.isdisjoint({list, dict}):
            raise UserError(f"`{key}` must be a single value, got {value!r}.")
    return recipe


def _put_over(recipe: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe with the ones of flags over them.

    A flag of either batch size replaces both, and one that brings a vocabulary replaces the recipe's about another.
    """
    for values, place in ((recipe, "in the recipe"), (flags, "as flags")):
        if values.keys() >= {*BATCH_SIZES}:
            raise UserError(
                f"Give either `tokens_per_step`, for all processes, or `max_tokens`, for a batch, got both {place}."
            )
    replaced = {*BATCH_SIZES} if flags.keys() & BATCH_SIZES else set[str]()
    brings_one = "init_from" in flags and (recipe | flags).get("init_vocabulary", KEEP) == KEEP
    if brings_one or "tokenizer" in flags:
        replaced |= {*OF_NEW_TOKENIZERS}
    return {name: value for name, value in recipe.items() if name not in replaced} | flags


def _add_launcher(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the settings of the launcher, if there are any: reading them imports torch."""
    if "tokens_per_step" not in values and not any(name.startswith("ACCELERATE_") for name in os.environ):
        return values
    from .launcher import add_launcher

    return add_launcher(values)
