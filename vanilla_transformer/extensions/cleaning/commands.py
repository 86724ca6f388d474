"""Clean the training text of a recipe."""

import logging
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, create_model

from vanilla_transformer.cli.flags import (
    ThreadArguments,
    group_fields,
    register_models,
    set_threads,
)
from vanilla_transformer.data.cleaning_rules import ON_TOKENS, CleaningRules
from vanilla_transformer.data.data_arguments import (
    DataArguments,
    check_data_arguments,
    corpus_specs,
    named_files,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import check_pipes
from vanilla_transformer.machine.imports import show_progress
from vanilla_transformer.training.recipe import parse_sections, reading_recipe
from vanilla_transformer.user_input.command_line import CommandLine
from vanilla_transformer.user_input.schemas import ARGUMENT, Input

logger = logging.getLogger(__name__)

# Rules of `clean-corpus` that are on, or have a value, unless a recipe or a flag says otherwise;
# `train` has none.
_DROP = [
    "empty",
    "identical",
    "bad_encoding",
    "markup",
    "other_numbers",
    "other_scripts",
    "duplicates",
    "misaligned",
]
_DEFAULTS: dict[str, Any] = {
    "max_characters": 1_000,
    "max_character_ratio": 3.0,
    "min_letter_ratio": 0.5,
}
_USUAL = f"Default: {','.join(_DROP)} and, where the languages are known, other_languages."
_TEXT_KEYS = (
    "train_source",
    "train_target",
    "dataset",
    "corpora",
    "source_language",
    "target_language",
)
_RULE_KEYS = [name for name in CleaningRules.model_fields if name not in ON_TOKENS]
# The flags that `--help` shows.
_MAIN = (
    *_TEXT_KEYS,
    "output_dir",
    "min_score",
    "max_characters",
    "max_character_ratio",
    "min_letter_ratio",
    "drop",
)


def _key(name: str) -> Any:
    """Return the type and the declaration of a key of a recipe, with the default of
    `clean-corpus`.
    """
    declared = copy(DataArguments.model_fields[name])
    declared.default = _DEFAULTS.get(name, declared.default)
    if name == "drop":
        first_sentence = str(declared.description).partition(". ")[0]
        declared.description = f"{first_sentence}. {_USUAL}"
    return declared.rebuild_annotation(), declared


_keys: dict[str, Any] = {name: _key(name) for name in (*_TEXT_KEYS, *_RULE_KEYS, "cache_dir")}
_CleaningKeys: Any = create_model("_CleaningKeys", __base__=ThreadArguments, **_keys)


class CleanCorpusArguments(_CleaningKeys):
    """Flags of `clean-corpus`."""

    recipe: Annotated[Input | None, ARGUMENT] = Field(
        None,
        description=(
            "A YAML file with some of these flags as keys, such as the recipe of a training run."
        ),
    )
    output_dir: str = Field("", description="Folder for the text and the report.")


def clean_corpus_command(arguments: Sequence[str]) -> None:
    flag_words = [word for word in arguments if word.startswith("--")]
    flag_names = {word[2:].partition("=")[0].replace("-", "_") for word in flag_words}
    limits = ("max_characters", "max_character_ratio")
    for flag, other in zip(ON_TOKENS, limits, strict=True):
        if flag in flag_names:
            raise UserError(
                f"--{flag} must be given to `train`, which counts tokens, got it in clean-corpus. "
                f"Move it, or limit characters by --{other}."
            )
    groups = group_fields(CleanCorpusArguments)
    command_line = CommandLine(groups, "vanilla-transformer clean-corpus", _MAIN)
    flags = command_line.read(arguments)
    with reading_recipe(flags.get("recipe"), flags, keeps_null=True) as (keys, reasons):
        # null turns a rule off
        chosen = {}
        for name in keys:
            if keys[name] is not None or name in _RULE_KEYS:
                chosen[name] = keys[name]
        if "drop" in chosen and chosen["drop"] is None:
            chosen["drop"] = []
        parsed, refused = parse_sections([CleanCorpusArguments], chosen | flags, reasons)
        options = parsed[CleanCorpusArguments]
        if not options.output_dir and "output_dir" not in refused:
            reasons.add(
                "`output_dir` must be given: a folder for the text, such as --output_dir "
                "data/cleaned."
            )
        check_languages = "drop" not in options.model_fields_set
        values = {name: value for name, value in options if name in _keys}
        if check_languages:
            values["drop"] = _DROP
        data = DataArguments(**values)
        with reasons.collect(refused=refused):
            check_data_arguments(data)
    check_pipes([*filter(None, [options.recipe]), *named_files(data)])
    register_models()
    set_threads(options.threads)
    with show_progress():
        _clean_corpus(data, check_languages, Path(options.output_dir))


def _clean_corpus(data: DataArguments, check_languages: bool, folder: Path) -> None:
    from vanilla_transformer.data.prepare_data import REPORT_FILE, load_texts
    from vanilla_transformer.evaluation.plots import draw_picture, plot_lengths

    from .corpus_files import why_languages_are_unknown, write_corpus_files

    if check_languages:
        reason = why_languages_are_unknown(corpus_specs(data))
        if reason is not None:
            logger.info("Pairs in other languages are kept. %s", reason)
        else:
            data = data.model_copy(update={"drop": [*_DROP, "other_languages"]})
    texts = load_texts(data)
    files = write_corpus_files(texts, folder)
    print(texts.training.report)
    print(f"The text is in {', '.join(map(str, files))}.")
    draw_picture("lengths are", plot_lengths, folder / REPORT_FILE, folder / "lengths.png")
