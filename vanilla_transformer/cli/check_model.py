"""Check whether a model folder can be published, and how its translations stand changes of a text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.file_utils import write_text_atomically

from .arguments import PRECISION_HELP, check_record_name, parse, require_one_model
from .language_arguments import LanguageArguments, language_settings


@dataclass
class CheckArguments(LanguageArguments):
    """Flags of `check-model`. With a text, it also prints a stress table."""

    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the folder's own code even if it differs from this package's."}
    )
    source: str | None = field(
        default=None, metadata={"help": "Source text of a stress test, one sentence per line, with --target."}
    )
    target: str | None = field(default=None, metadata={"help": "Its translations, one per line."})
    max_pairs: int | None = field(default=None, metadata={"help": "Use the first pairs only; by default all."})
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    name: str | None = field(
        default=None,
        metadata={"help": "Name of the text. The stress table is saved in the model's folder for its card."},
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        CheckArguments,
        arguments,
        "check-model FOLDER [--source FILE --target FILE] [--flags]",
        {"FOLDER": "Folder of the model."},
    )
    folder = require_one_model(words)
    _check(options)
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.publishing.checks import check_folder, failed_checks, format_results

    pairs = []
    if options.source is not None and options.target is not None:
        pairs = read_text_files(options.source, options.target)[: options.max_pairs]
    results = check_folder(folder, options.trust_remote_code)
    print(format_results(results), flush=True)
    if pairs:
        _stress(folder, pairs, options)
    failed = failed_checks(results)
    if failed:
        raise SystemExit(f"{folder} cannot be published: {len(failed)} of {len(results)} checks failed.")  # status 1


def _check(options: CheckArguments) -> None:
    if (options.source is None) != (options.target is None):
        raise ValueError("A stress test needs a text and its translations. Give both --source and --target, or none.")
    for name in ("name", "max_pairs", "precision", "source_language", "target_language"):
        if options.source is None and getattr(options, name) is not None:
            raise ValueError(f"--{name} is for a stress test. Give --source and --target, or leave it out.")
    if options.max_pairs is not None and options.max_pairs < 1:
        raise ValueError(f"`max_pairs` must be 1 or more, got {options.max_pairs}.")
    if options.name is not None:
        check_record_name(options.name)


def _stress(folder: str, pairs: Sequence, options: CheckArguments) -> None:
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.evaluation.stress import format_header, format_row, measure_stress

    translate = load_pipeline(folder, precision=options.precision)
    languages = language_settings(translate.tokenizer, options)
    print(f"\n{format_header()}", flush=True)
    table = measure_stress(translate, pairs, lambda row: print(format_row(row), flush=True), **languages)
    if options.name is not None:
        record = {"name": options.name, "rows": [row._asdict() for row in table.rows], "groups": table.groups}
        path = Path(folder) / "stress_tables" / f"{options.name.replace(' ', '_')}.json"
        write_text_atomically(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
