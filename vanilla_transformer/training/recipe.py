"""
Parse the recipe of a training run: a YAML file, flags over it, and the launcher's settings where
both have none.

Every mistake is a `ValueError` that names it.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from vanilla_transformer.data.data_arguments import named_files
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.inputs import check_pipes, is_pipe, read_input
from vanilla_transformer.files.resources import describe_recipes, find_recipe
from vanilla_transformer.files.text_files import decode_text
from vanilla_transformer.user_input.command_line import CommandLine, format_table
from vanilla_transformer.user_input.names import check_names
from vanilla_transformer.user_input.reasons import Key, Reasons, mistakes_of
from vanilla_transformer.user_input.schemas import ARGUMENT, Input, Schema
from vanilla_transformer.user_input.user_modules import use_user_module
from vanilla_transformer.user_input.yaml_values import find_lines, load_yaml

from .recipe_checks import check_recipe
from .run_arguments import BATCH_SIZES, KEEP, OF_NEW_TOKENIZERS, SECTIONS, Recipe


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML recipe."""
    if not (Path(path).is_file() or is_pipe(path)):
        raise MissingFileError(
            f"There is no recipe {path}. Recipes are YAML files such as recipes/demo.yaml."
        )
    text = decode_text(read_input(path), f"The recipe {path}")
    try:
        recipe = load_yaml(text)
    except UserError as error:
        raise UserError(f"The recipe {path} must be YAML: {error}") from error
    return _check_mapping(recipe, f"recipe {path}")


def _find_key_lines(
    path: str | Path | None, flags: Collection[str], sections: Collection[str]
) -> dict[Key, int]:
    """Return the lines of the keys of a recipe, wherever their sections are, unless flags override
    them.
    """
    lines = dict[Key, int]()
    if path is None:
        return lines
    for key, line in find_lines(decode_text(read_input(path), f"The recipe {path}")).items():
        name = key[1:] if key[0] in sections and len(key) > 1 else key
        if name[0] not in flags:
            lines[name] = line
    return lines


def _check_mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"The {what} must hold `key: value` lines, got {type(value).__name__}.")
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"Every key of the {what} must be a name, got {key!r}.")
    return value


def flatten_sections(
    recipe: Mapping[str, Any], sections: Mapping[str, str], reasons: Reasons
) -> dict[str, Any]:
    """Return the keys of a recipe, which stand in sections such as `model` or at its top level.

    Args:
        sections: The section of each known key.
        reasons: Gets the mistakes.
    """
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        is_section = name in sections.values()
        entries = {name: value}
        if is_section:
            entries = {}
            with reasons.collect(name):
                if value is not None:
                    entries = _check_mapping(value, f"section `{name}`")
        for key, entry in entries.items():
            key = key.replace("-", "_")
            if is_section and sections.get(key, name) != name:
                reasons.add(
                    f"`{key}` must be in the section `{sections[key]}`, got it in `{name}`. Move "
                    "it.",
                    key,
                )
            if key in flat:
                reasons.add(
                    f"`{key}` must be in a recipe once, got it twice. Delete one of the two.", key
                )
            flat[key] = entry
    return flat


# The keys that `--help` shows; `--help_all` shows all.
MAIN_KEYS = (
    *(
        "train_source",
        "train_target",
        "validation_source",
        "validation_target",
        "dataset",
        "vocab_size",
        "max_tokens",
    ),
    *(
        "d_model",
        "dropout",
        "max_steps",
        "max_minutes",
        "mixed_precision",
        "output_dir",
        "dry_run",
        "init_from",
    ),
)


class RecipeArguments(Schema):
    """The argument of commands that read a recipe."""

    recipe: Annotated[Input | None, ARGUMENT] = Field(
        None,
        description=(
            "Name of a recipe below, or a YAML file. Its keys are these flags, which override them."
        ),
    )


def parse_recipe(arguments: Sequence[str], program: str | None = None) -> Recipe:
    """Parse `[recipe] [--flag value …]`, and resolve it with the settings of the launcher.

    The recipe is a YAML file or the name of a packaged one, such as `small`. Flags override it. The
    launcher, such as `accelerate launch` with its file, gives the number of processes and what
    flags and recipe leave out; the defaults give the rest.
    """
    return parse_recipe_with({}, arguments, program, MAIN_KEYS)[0]


def parse_recipe_with(
    further: Mapping[str, type[Any]],
    arguments: Sequence[str],
    program: str | None,
    main: Sequence[str],
    complete: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> tuple[Recipe, Any]:
    """Parse a recipe that may also have the fields of a schema, in a section of this name. See
    [`parse_recipe`].

    Args:
        further: The schema, by the name of the section; or nothing.
        main: Keys that `--help` shows.
        complete: Returns the keys and values, given the ones of recipe and flags.
    """
    sections = {name: (part,) for name, part in further.items()} | SECTIONS
    groups = {
        name: {**parts[0].model_fields, **parts[-1].model_fields}
        for name, parts in sections.items()
    }
    groups |= {"recipe": RecipeArguments.model_fields}
    notes = f"recipes:\n{format_table(describe_recipes())}"
    flags = CommandLine(groups, program or "parse_recipe", main, notes).read(arguments)
    name = flags.pop("recipe", None)
    with reading_recipe(name, flags, sections) as (values, reasons):
        for keys, origin in ((values, "in the recipe"), (flags, "as flags")):
            if keys.keys() >= {*BATCH_SIZES}:
                reasons.add(
                    "Give either `tokens_per_step`, for all processes, or `max_tokens`, for a "
                    f"batch, got both {origin}.",
                    "tokens_per_step",
                )
        # A flag of either batch size replaces both, and one that brings a vocabulary replaces keys
        # about another.
        replaced = {*BATCH_SIZES} if flags.keys() & BATCH_SIZES else set[str]()
        brings_one = "init_from" in flags and (values | flags).get("init_vocabulary", KEEP) == KEEP
        if brings_one or "tokenizer" in flags:
            replaced |= {*OF_NEW_TOKENIZERS}
        values = {key: value for key, value in values.items() if key not in replaced}
        values = complete(values | flags)
        schemas = [part for parts in sections.values() for part in parts]
        parsed, refused = parse_sections(schemas, values, reasons)
        by_name = {field.annotation: name for name, field in Recipe.model_fields.items()}
        sections_of_recipe = {
            by_name[part]: section for part, section in parsed.items() if part in by_name
        }
        recipe = Recipe(**sections_of_recipe, given=frozenset(values) - refused)
        if recipe.classes.user_module is not None:
            use_user_module(recipe.classes.user_module)
        if "tokens_per_step" in values or any(
            variable.startswith("ACCELERATE_") for variable in os.environ
        ):
            from .launcher import add_launcher  # which imports torch

            recipe = add_launcher(recipe)
        with reasons.collect(refused=refused):
            check_recipe(recipe)
    check_pipes([*filter(None, [name]), *named_files(recipe.data)])
    return recipe, next((parsed[part] for part in further.values()), None)


@contextmanager
def reading_recipe(
    name: str | None,
    flags: Collection[str],
    sections: Mapping[str, tuple[type[Schema], ...]] = SECTIONS,
    keeps_null: bool = False,
) -> Iterator[tuple[dict[str, Any], Reasons]]:
    """Give the known keys and values of a recipe, and refuse at the end of the block with all
    mistakes, each with its line.

    Numbers are text, as in flags; null is as if it were not there.

    Args:
        name: The recipe, if there is one.
        flags: The keys that flags override.
        sections: The schemas whose fields are the keys, by section.
        keeps_null: Whether the values have null as None, instead.
    """
    path = None if name is None else find_recipe(name)
    content = {} if path is None else read_recipe(path)
    section_of = dict[str, str]()
    for section, parts in sections.items():
        for part in parts:
            section_of |= dict.fromkeys(part.model_fields, section)
    with Reasons(str(path), partial(_find_key_lines, path, flags, sections)) as reasons:
        recipe = flatten_sections(content, section_of, reasons)
        with reasons.collect():
            check_names(recipe, section_of, "recipe key")
        values = dict[str, Any]()
        for key, value in recipe.items():
            if key in section_of and (value is not None or keeps_null):
                values[key] = value if isinstance(value, list | dict | None) else str(value)
        yield values, reasons


def parse_sections(
    schemas: Sequence[type[Schema]], values: Mapping[str, Any], reasons: Reasons
) -> tuple[dict[type[Any], Any], set[str]]:
    """Return the sections of a recipe, and the keys whose wrong values were left out."""
    parsed = dict[type[Any], Any]()
    refused = set[str]()
    for schema in schemas:
        section = {name: values[name] for name in schema.model_fields if name in values}
        try:
            parsed[schema] = schema(**section)
        except UserError as error:
            reasons.take(error)
            wrong = {str(key) for mistake in mistakes_of(error) for key in mistake.key[:1]}
            refused |= wrong
            rest = {key: value for key, value in section.items() if key not in wrong}
            parsed[schema] = schema(**rest)
    return parsed, refused
