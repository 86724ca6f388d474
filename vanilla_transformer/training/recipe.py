"""
The recipe of a training run: dataclasses that a YAML file and flags fill in.

Every mistake is a `ValueError` that names it.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.stages import UNTIL_SHARE
from vanilla_transformer.file_utils import decode_text
from vanilla_transformer.resources import describe_recipes, find_recipe
from vanilla_transformer.user_input import check_names, load_yaml

from .lr_scheduler import NEED_MAX_STEPS, Schedule
from .parser import Parser, format_table
from .recipe_checks import check_recipe
from .run_arguments import (
    DROPOUTS,
    REMOVED,
    RENAMED,
    FineTuningArguments,
    LongArguments,
    ModelArguments,
    OptimizationArguments,
    OutputArguments,
)

logger = logging.getLogger(__name__)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML recipe.

    Raises:
        OSError: the file does not exist.
        ValueError: the file is not YAML, is not a mapping of names, has a key twice, or has an alias.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no recipe {path}. Recipes are YAML files such as recipes/demo.yaml.")
    text = decode_text(Path(path).read_bytes(), f"The recipe {path}")
    try:
        recipe = load_yaml(text)
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


@dataclass(frozen=True)
class Recipe:
    """Everything that one run needs, as [`parse_recipe`] resolves it from YAML, flags and launcher.

    Nothing replaces it afterwards: what follows from the corpus is the [`Schedule`]. No two parts share a field name,
    so that a recipe may be one flat file.

    Raises:
        ValueError: a value cannot work; the text names the field, the value and the rule.
    """

    data: DataArguments
    model: Any  # ModelArguments
    long: Any  # LongArguments
    optimization: OptimizationArguments
    output: OutputArguments
    fine_tuning: FineTuningArguments = field(default_factory=FineTuningArguments)

    def __post_init__(self) -> None:
        check_recipe(self)


# The keys of a recipe by its sections, in which they may stand.
SECTIONS: dict[str, tuple[type[Any], ...]] = {
    "data": (DataArguments,),
    "model": (ModelArguments, LongArguments),
    "optimization": (OptimizationArguments,),
    "output": (OutputArguments,),
    "fine_tuning": (FineTuningArguments,),
}
RECIPE_PARTS = tuple(part for parts in SECTIONS.values() for part in parts)
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


def parse_recipe(arguments: Sequence[str], program: str | None = None, main: Sequence[str] = MAIN_KEYS) -> Recipe:
    """Parse `[recipe] [--flag value …]`, and resolve it with the settings of the launcher.

    The recipe is a YAML file or the name of a packaged one, such as `small`. Flags override it. The launcher, such as
    `accelerate launch` with its file, gives the number of processes and what flags and recipe leave out; the defaults
    give the rest.

    Raises:
        ValueError: an unknown flag or key (the text names the nearest known one, or its new name), or values that
            cannot work together, or not with the launcher's.
        OSError: the recipe cannot be read.
    """
    return parse_recipe_with({}, arguments, program, main)[0]


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
    flags = [word[2:].split("=")[0] for word in arguments if word.startswith("--")]
    check_renamed(flags, "flag")
    words = parser.find_words(arguments)
    recipe = read_keys(words, sections)
    _choose_batch_size(recipe, flags)
    # A recipe is parsed as flags, so that both obey the same rules. Later flags override earlier ones.
    _, parsed = parser.parse([*as_flags(recipe), *arguments])
    from .launcher import apply_launcher  # with torch, which `--help` does not need

    by_part = dict(zip(titles, parsed, strict=True))
    return apply_launcher(Recipe(*(by_part[part] for part in RECIPE_PARTS))), parsed[0]


def read_keys(words: Sequence[str], sections: Mapping[str, tuple[type[Any], ...]] | None = None) -> dict[str, Any]:
    """Return the keys and values of the recipe that a command names, or none if it names no recipe.

    Args:
        words: The arguments of the command besides its flags.
        sections: The dataclasses whose fields are the keys, by section; by default the ones of training.

    Raises:
        ValueError: there are several words, a key is unknown, renamed, or in another section than its own, or has a
            list or a mapping instead of one value.
        OSError: the recipe cannot be read.
    """
    if len(words) > 1:
        raise ValueError(f"Name one recipe, and give each value after its flag, got {' '.join(words[:3])!r}.")
    section_of, hints = dict[str, str](), dict[str, Any]()
    for name, parts in (SECTIONS if sections is None else sections).items():
        for part in parts:
            section_of |= {item.name: name for item in fields(part)}
            hints |= get_type_hints(part)
    recipe = flatten_sections(read_recipe(find_recipe(words[0])), section_of) if words else {}
    check_renamed(recipe, "recipe key")
    check_names(recipe, {*section_of}, "recipe key")
    for key, value in recipe.items():  # many a key would take the text of a list
        kinds = {get_origin(kind) or kind for kind in (hints.get(key), *get_args(hints.get(key)))}
        if isinstance(value, list | dict) and kinds.isdisjoint({list, dict}):
            raise ValueError(f"`{key}` must be a single value, got {value!r}.")
    return recipe


def _choose_batch_size(recipe: dict[str, Any], flags: list[str]) -> None:
    """Drop the recipe's `tokens_per_step` if the flags have `max_tokens`, and vice versa.

    Raises:
        ValueError: both are in the recipe, or both among the flags.
    """
    in_recipe = [name for name in BATCH_SIZES if recipe.get(name) is not None]
    in_flags = [name for name in BATCH_SIZES if name in {flag.replace("-", "_") for flag in flags}]
    for given, place in ((in_recipe, "in the recipe"), (in_flags, "as flags")):
        if len(given) > 1:
            raise ValueError(
                f"Give either `tokens_per_step`, for all processes, or `max_tokens`, for a batch, got both {place}."
            )
    for name in in_recipe:
        if in_flags and name not in in_flags:
            del recipe[name]


def flatten(recipe: Recipe) -> dict[str, Any]:
    """Return all values of a recipe by name."""
    return {name: value for part in asdict(recipe).values() for name, value in part.items()}


def default_values() -> dict[str, Any]:
    """Return the default of each key of a recipe that has one, by name."""
    items = {item.name: item for part in RECIPE_PARTS for item in fields(part) if item.init}
    values = {name: item.default for name, item in items.items() if item.default is not MISSING}
    made = {name: item.default_factory() for name, item in items.items() if item.default_factory is not MISSING}
    return values | made


def given_architecture(recipe: Recipe) -> dict[str, Any]:
    """Return the values of a recipe that describe the architecture and are not the defaults."""
    parts = ((recipe.model, ModelArguments()), (recipe.long, LongArguments()))
    values = {name: value for part, default in parts for name, value in asdict(part).items() - asdict(default).items()}
    return {name: values[name] for name in sorted(values.keys() - set(DROPOUTS))}


# Arguments that decide how long a run lasts, what it records and where it computes, but not what it computes. The
# batches of a step are processes × accumulation, which `RunFolder.restore` reports when they change.
_MAY_CHANGE = {"output_dir", "overwrite_output_dir", "logging_steps", "eval_steps", "save_steps", "save_minutes"}
_MAY_CHANGE |= {"keep_last", "keep_best", "best_metric", "average_checkpoints", "report_to", "max_minutes"}
_MAY_CHANGE |= {
    "early_stopping_patience",
    "greater_is_better",
    "compile",
    "packing",
    "attn_implementation",
    "dataloader_num_workers",
    "threads",
    "fsdp",
    "sharded_checkpoints",
}
_MAY_CHANGE |= {
    "fsdp_reshard_after_forward",
    "gradient_accumulation_steps",
    "max_steps",
    "num_train_epochs",
    "dry_run",
    "allow_changed_data",
}
# The size of a step, and of a batch, which follows from the former and the number of processes where it is given.
BATCH_SIZES = ("tokens_per_step", "max_tokens")
# Arguments that are derived where a recipe does not give them.
DERIVED = tuple(item.name for item in fields(Schedule))
PADDING = "pad_to_multiple_of"  # is derived as well, by the device
# Arguments that end a run.
LIMITS = ("max_steps", "num_train_epochs", "max_minutes", "early_stopping_patience")


def check_same_run(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that a run with the flat recipe `now` can resume one with `before`, and log all changes.

    A name that `before` lacks, because it is newer than the run, had its default. A removed one may have the
    value that training uses since.

    Raises:
        ValueError: a change would make it a different run; the text names each value before and now.
    """
    before = default_values() | {
        name: value for name, value in before.items() if name not in REMOVED or value != REMOVED[name][0]
    }
    names = sorted(name for name in before.keys() | now.keys() if not _is_same(name, before, now))
    needs_max_steps = now.get("lr_scheduler") in NEED_MAX_STEPS or any(
        UNTIL_SHARE in stage for stage in now.get("stages") or ()
    )
    allowed = _MAY_CHANGE - ({"max_steps", "num_train_epochs"} if needs_max_steps else set())
    if before["max_tokens"] == now["max_tokens"]:
        allowed |= {"tokens_per_step"}
    elif now["tokens_per_step"] is not None and before["tokens_per_step"] == now["tokens_per_step"]:
        allowed |= {"max_tokens"}  # of another number of processes
    refused = [name for name in names if name not in allowed]
    if refused:
        raise ValueError(
            f"The run in {now['output_dir']} cannot resume with different values of "
            f"{_list_changes(refused, before, now)}. Restore them, choose another --output_dir, or start over with "
            "--overwrite_output_dir."
        )
    if names:
        logger.info("Changed since the run began: %s.", _list_changes(names, before, now))


def has_same_limits(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a run with the flat recipe `now` ends as one with `before`."""
    return all(_is_same(name, before, now) for name in LIMITS)


def _is_same(name: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a value is the same, or is derived and has been derived before."""
    return before.get(name) == now.get(name) or (name in (*DERIVED, PADDING) and now.get(name) is None)


def _list_changes(names: list[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    return ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names)
