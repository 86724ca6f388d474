"""Download, write, clean and tokenize parallel text."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints

from vanilla_transformer.data.cleaning_rules import ON_TOKENS, CleaningRules, refuse_former_switches
from vanilla_transformer.data.data_arguments import (
    NORMALIZATIONS,
    TOKENIZER_MODELS,
    DataArguments,
    check_data_arguments,
    corpus_specs,
)
from vanilla_transformer.training.parser import Parser, with_underscores
from vanilla_transformer.training.recipe import as_flags, read_keys
from vanilla_transformer.utils.file_utils import TOKENIZER_FILES, atomic_folder

from .flags import (
    ThreadArguments,
    parse,
    register_models,
    require_no_words,
    set_threads,
)
from .train import draw_corpus_lengths, draw_pictures, show_progress

logger = logging.getLogger(__name__)


@dataclass
class DownloadArguments:
    """Flags of `download-data`."""

    output_dir: str | None = field(default=None, metadata={"help": "Folder for the files; by default data/CORPUS."})
    base_url: str | None = field(
        default=None, metadata={"help": "Mirror that serves the same .gz files; by default the original source."}
    )


def download_data_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        DownloadArguments,
        arguments,
        "download-data CORPUS [--flags]",
        {"CORPUS": "Name of a corpus; a wrong one lists all names."},
    )
    from vanilla_transformer.data.download import CORPORA, download_corpus

    if len(words) != 1:
        raise ValueError(f"Name one corpus of {', '.join(CORPORA)}, got {len(words)} names.")
    (name,) = words
    folder = download_corpus(name, Path(options.output_dir or Path("data") / name), options.base_url)
    print(f"{name} is in {folder}. License: {CORPORA[name].license}.")


@dataclass
class CorpusArguments:
    """Flags of `write-corpus`."""

    output_dir: str = field(metadata={"help": "Folder for train.en, train.de, the other splits and their license."})
    train: int = field(default=82_941, metadata={"help": "Number of training pairs; by default all."})
    validation: int = field(default=433, metadata={"help": "Number of validation pairs; by default all."})
    test: int = field(default=500, metadata={"help": "Number of test pairs; by default all."})


def write_corpus_command(arguments: Sequence[str]) -> None:
    words, options = parse(CorpusArguments, arguments, "write-corpus --output_dir FOLDER [--flags]")
    require_no_words(words)
    from vanilla_transformer.data.demo_corpus import write_demo_corpus

    write_demo_corpus(options.output_dir, train=options.train, validation=options.validation, test=options.test)
    print(f"The corpus is in {options.output_dir}. Its license (CC BY 2.0 FR) is in README.md there.")


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
        raise ValueError(f"{rule}. Move it, or limit characters by --{_ON_CHARACTERS[flag[2:]]}.")
    folder = ("output_dir", str, field(default="", metadata={"help": "Folder for the text and the report."}))
    classes = [_flags_of(_TEXT_KEYS, "text", folder), _flags_of([*_RULE_KEYS, "cache_dir"], "rules")]
    classes.append(ThreadArguments)
    usage = "vanilla-transformer clean-corpus [RECIPE] [--flag value ...]"
    about = {"RECIPE": "A YAML file with some of these flags as keys, such as the recipe of a training run."}
    parser = Parser(classes, usage, about, _CLEANING_MAIN)
    refuse_former_switches([flag[2:] for flag in sorted(given)], "flag")
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
        raise ValueError("`output_dir` must be given: a folder for the text, such as --output_dir data/cleaned.")
    _clean_corpus(values, Path(output_dir))


def _clean_corpus(flags: dict[str, Any], output_dir: Path) -> None:
    threads, check_languages = flags.pop("threads"), flags["drop"] is None
    data = DataArguments(**flags | {"drop": _DROP if check_languages else flags["drop"]})
    check_data_arguments(data)
    register_models()
    set_threads(threads)
    from vanilla_transformer.data.cleaning import why_languages_are_unknown
    from vanilla_transformer.data.prepare_data import load_texts, write_corpus_files

    show_progress()
    if check_languages:
        reason = why_languages_are_unknown(corpus_specs(data))
        if reason is not None:
            logger.info("Pairs in other languages are kept. %s", reason)
        else:
            data = replace(data, drop=[*_DROP, "other_languages"])
    texts = load_texts(data)
    files = write_corpus_files(texts, output_dir)
    print(texts.training.report)
    print(f"The text is in {', '.join(map(str, files))}.")
    draw_pictures(draw_corpus_lengths, output_dir)


@dataclass
class TokenizerArguments:
    """Flags of `train-tokenizer`."""

    output_dir: str = field(metadata={"help": "Folder for tokenizer.json and tokenizer_config.json."})
    vocab_size: int = field(default=37000, metadata={"help": "Vocabulary size (section 5.1)."})
    min_frequency: int = field(default=2, metadata={"help": "Minimum frequency of a pair to be merged."})
    model: str = field(
        default="bpe",
        metadata={"help": "Tokenizer model: bpe, unigram or wordpiece.", "choices": list(TOKENIZER_MODELS)},
    )
    normalization: str = field(
        default="nfc",
        metadata={
            "help": "Form of the text before it is split into words: nfc, nfkc or none.",
            "choices": list(NORMALIZATIONS),
        },
    )


def train_tokenizer_command(arguments: Sequence[str]) -> None:
    files, options = parse(
        TokenizerArguments,
        arguments,
        "train-tokenizer FILE [FILE ...] --output_dir FOLDER [--flags]",
        {"FILE": "Text files, one sentence per line."},
    )
    if not files:
        raise ValueError("Name at least one text file.")
    folder = Path(options.output_dir)
    if any((folder / name).exists() for name in (*TOKENIZER_FILES, "tokenizer_config.json")):
        raise ValueError(f"{folder} already holds a tokenizer. Choose another --output_dir, or delete it first.")
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.data.tokenizer_training import train_tokenizer

    lines = chain.from_iterable(read_lines(file) for file in files)
    tokenizer = train_tokenizer(
        lines,
        options.vocab_size,
        options.min_frequency,
        show_progress=True,
        model=options.model,
        normalization=options.normalization,
    )
    with atomic_folder(folder) as aside:
        tokenizer.save_pretrained(aside)
    print(f"The tokenizer with {len(tokenizer)} entries is in {folder}.")
