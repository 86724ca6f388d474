"""Clean the training text of a recipe."""

import logging
from collections.abc import Sequence
from dataclasses import field, fields, make_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from vanilla_transformer.cli.flags import ThreadArguments, register_models, set_threads
from vanilla_transformer.cli.train import draw_corpus_lengths, draw_pictures, show_progress
from vanilla_transformer.data.cleaning_rules import ON_TOKENS, CleaningRules
from vanilla_transformer.data.data_arguments import DataArguments, check_data_arguments, corpus_specs, named_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.training.parser import Parser, with_underscores
from vanilla_transformer.training.recipe import as_flags, read_keys
from vanilla_transformer.utils.input_files import check_pipes

logger = logging.getLogger(__name__)

# Rules of `clean-corpus` that are on, or have a value, unless a recipe or a flag says otherwise; `train` has none.
_CLEANING_DEFAULTS: dict[str, Any] = {"max_characters": 1_000, "max_character_ratio": 3.0, "min_letter_ratio": 0.5}
_DROP = ["empty", "identical", "bad_encoding", "markup", "other_numbers", "other_scripts", "duplicates", "misaligned"]
_ON_CHARACTERS = dict(zip(ON_TOKENS, ("max_characters", "max_character_ratio"), strict=True))
_TEXT_KEYS = ["train_source", "train_target", "dataset", "corpora", "source_language", "target_language"]
_RULE_KEYS = [item.name for item in fields(CleaningRules) if item.name not in ON_TOKENS]
# The flags that `--help` shows.
_CLEANING_MAIN = [*_TEXT_KEYS, "output_dir", *("min_score", "max_characters", "max_character_ratio")]
_CLEANING_MAIN += ["min_letter_ratio", "drop"]


def _flags_of(names: Sequence[str], title: str, *further: tuple[str, Any, Any]) -> type[Any]:
    """Return a dataclass of flags with the types and the help of recipe keys, and the defaults of `clean-corpus`."""
    hints, items = get_type_hints(DataArguments), {item.name: item for item in fields(DataArguments)}
    flags = []
    for name in names:
        default, metadata = _CLEANING_DEFAULTS.get(name, items[name].default), dict(items[name].metadata)
        if name == "drop":
            usual = f"Default: {','.join(_DROP)} and, where the languages are known, other_languages."
            metadata["help"] = f"{metadata['help'].partition('. ')[0]}. {usual}"
        flags.append((name, hints[name], field(default=default, metadata=metadata)))
    return make_dataclass("CleaningFlags", [*flags, *further], namespace={"__doc__": f"{title}."})


def clean_corpus_command(arguments: Sequence[str]) -> None:
    given = {with_underscores(word).partition("=")[0] for word in arguments if word.startswith("--")}
    for flag in sorted(given & {f"--{name}" for name in ON_TOKENS}):
        rule = f"{flag} must be given to `train`, which counts tokens, got it in clean-corpus"
        raise UserError(f"{rule}. Move it, or limit characters by --{_ON_CHARACTERS[flag[2:]]}.")
    folder = ("output_dir", str, field(default="", metadata={"help": "Folder for the text and the report."}))
    classes = [_flags_of(_TEXT_KEYS, "text", folder), _flags_of([*_RULE_KEYS, "cache_dir"], "rules")]
    classes.append(ThreadArguments)
    usage = "vanilla-transformer clean-corpus [RECIPE] [--flag value ...]"
    about = {"RECIPE": "A YAML file with some of these flags as keys, such as the recipe of a training run."}
    parser = Parser(classes, usage, about, _CLEANING_MAIN)
    flags, words = parser.read(arguments)
    recipe = read_keys(words)
    names = (*_TEXT_KEYS, "output_dir", *_RULE_KEYS, "cache_dir", "threads")
    own = {name: recipe[name] for name in names if name in recipe}
    empty = [name for name in _RULE_KEYS if name in own and own[name] is None]
    off: dict[str, Any] = {name: [] if name == "drop" else None for name in empty}  # null turns a rule off
    parsed = parser.build(parser.read(as_flags(own))[0] | off | flags)
    values = {name: value for part in parsed for name, value in vars(part).items()}
    output_dir = values.pop("output_dir")
    if not output_dir:
        raise UserError("`output_dir` must be given: a folder for the text, such as --output_dir data/cleaned.")
    threads, check_languages = values.pop("threads"), values["drop"] is None
    data = DataArguments(**values | {"drop": _DROP if check_languages else values["drop"]})
    check_data_arguments(data)
    check_pipes([*words, *named_files(data)])
    register_models()
    set_threads(threads)
    from vanilla_transformer.data.prepare_data import load_texts

    from .corpus_files import why_languages_are_unknown, write_corpus_files

    show_progress()
    if check_languages:
        reason = why_languages_are_unknown(corpus_specs(data))
        if reason is not None:
            logger.info("Pairs in other languages are kept. %s", reason)
        else:
            data = replace(data, drop=[*_DROP, "other_languages"])
    texts = load_texts(data)
    files = write_corpus_files(texts, Path(output_dir))
    print(texts.training.report)
    print(f"The text is in {', '.join(map(str, files))}.")
    draw_pictures(draw_corpus_lengths, Path(output_dir))
