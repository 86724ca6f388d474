"""Compute BLEU and chrF of each direction of a model with several languages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.file_utils import write_text_atomically

from .arguments import MODEL, PRECISION_HELP, parse, require_one_model
from .request_arguments import SearchArguments, request_settings

_MAIN = ("text", "directions", "json", "precision", "num_beams")  # the flags that `--help` shows


@dataclass
class _DirectionArguments:
    """Flags of the text, and of the scores."""

    text: str = field(
        metadata={"help": "Start of the names of text files: PREFIX for PREFIX.en, PREFIX.de, …, aligned by line."}
    )
    directions: list[str] | None = field(
        default=None,
        metadata={"help": "Directions such as en-de de-en. Default: all between languages that have a file."},
    )
    json: str | None = field(default=None, metadata={"help": "Write all scores to this file as JSON."})
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})


@dataclass
class EvaluateDirectionsArguments(SearchArguments, _DirectionArguments):
    """Flags of `evaluate-directions`."""


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        EvaluateDirectionsArguments,
        arguments,
        "evaluate-directions MODEL --text PREFIX [--directions en-de ...]",
        MODEL,
        _MAIN,
    )
    name = require_one_model(words)
    search = request_settings(options)
    if options.json is not None and Path(options.json).is_dir():
        raise ValueError(f"Scores must go to a file, but {options.json} is a folder.")
    from vanilla_transformer.decoding.engine.precision import check_precision
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.evaluation.decoding import process_state
    from vanilla_transformer.evaluation.directions import (
        format_table,
        parse_directions,
        read_test_sets,
        score_directions,
    )
    from vanilla_transformer.text.languages import find_languages

    if options.precision is not None:
        check_precision(options.precision)
    tokenizer = load_tokenizer(name)
    languages = find_languages(tokenizer)
    if languages is None:
        raise ValueError(f"The model must have several languages, but {name} has none. Use `evaluate` for it.")
    wanted = None if options.directions is None else parse_directions(options.directions, languages)
    directions, texts = read_test_sets(options.text, wanted, languages)
    model = load_seq2seq(name, "translates").to(process_state().device)
    settings = search | {"precision": options.precision, "progress_bar": True}
    results = score_directions(model, tokenizer, languages, directions, texts, **settings)
    if process_state().is_main_process:
        if options.json is not None:
            rows = [result.as_dict() for result in results]
            write_text_atomically(options.json, json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        print(format_table(results))
    process_state().destroy_process_group()
