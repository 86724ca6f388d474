"""Compute BLEU and chrF of a model, or of a file of translations, on a test set."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.file_utils import write_text_atomically

from .arguments import MODEL, PRECISION_HELP, WORKERS_HELP, check_record_name, parse, parse_workers, require_one_model
from .language_arguments import language_settings
from .model_arguments import FurtherModelArguments, further_models
from .request_arguments import SearchArguments, TermArguments, request_settings, without_terms

if TYPE_CHECKING:
    from vanilla_transformer.evaluation.report import Report

_USAGE = "evaluate MODEL --source FILE --target FILE [--flags], or evaluate --hypotheses FILE --target FILE [--flags]"
# The flags that `--help` shows.
_MAIN = [
    "target",
    "source",
    "hypotheses",
    "compare_with",
    "paper_bleu",
    "output_file",
    "json",
    "name",
    "num_beams",
    "source_language",
    "target_language",
    "glossary",
    "precision",
]


@dataclass
class _TextArguments:
    """Flags of the text, and of the scores. All text files are aligned line by line."""

    target: str = field(metadata={"help": "Reference translations, one sentence per line."})
    source: str | None = field(
        default=None, metadata={"help": "Source text to translate; required unless --hypotheses is given."}
    )
    hypotheses: str | None = field(
        default=None, metadata={"help": "Score the translations in this file instead of translating with a model."}
    )
    compare_with: str | None = field(
        default=None, metadata={"help": "Translations of a baseline system, compared by paired bootstrap resampling."}
    )
    paper_bleu: str | None = field(
        default=None,
        metadata={
            "nargs": "?",
            "const": "de",
            "help": "Add the paper's BLEU (Moses tokens, compounds split) for this target language, by default de.",
        },
    )
    bootstrap_samples: int = field(
        default=1000, metadata={"help": "Number of resamples for confidence intervals and p-values."}
    )
    output_file: str | None = field(default=None, metadata={"help": "Write the translations to this file."})
    json: str | None = field(default=None, metadata={"help": "Write all scores to this file as JSON."})
    name: str | None = field(
        default=None,
        metadata={
            "help": "Name of the test set. Scores and worst translations are saved in the model's folder under this "
            "name, for its card."
        },
    )
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    workers: str = field(default="1", metadata={"help": WORKERS_HELP})


@dataclass
class EvaluateArguments(SearchArguments, FurtherModelArguments, TermArguments, _TextArguments):
    """Flags of `evaluate`."""


def main(arguments: Sequence[str]) -> None:
    words, options = parse(EvaluateArguments, arguments, _USAGE, MODEL, _MAIN)
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.evaluation.decoding import process_state
    from vanilla_transformer.evaluation.report import add_term_use, build_report

    _check(words, options)
    settings = request_settings(options)
    references = _read_references(options)
    baseline = None if options.compare_with is None else _read_aligned(options.compare_with, references, options)
    if options.hypotheses is not None:
        hypotheses = _read_aligned(options.hypotheses, references, options)
    else:
        hypotheses = _translate(words[0], options, settings)
        if options.glossary is not None and baseline is None:  # what the glossary changes
            baseline = _translate(words[0], options, without_terms(settings))
    if process_state().is_main_process:
        found = build_report(hypotheses, references, baseline, options.paper_bleu, options.bootstrap_samples)
        if options.source is not None and options.glossary is not None:
            found = add_term_use(found, settings["glossary"], read_lines(options.source), hypotheses, baseline)
        _write_results(hypotheses, found, options)
        if options.name is not None:
            _save_for_card(Path(words[0]), hypotheses, references, found, options)
        print("\n".join(found.lines()))
    process_state().destroy_process_group()


def _check(words: Sequence[str], options: EvaluateArguments) -> None:
    """Refuse invalid options before an hour of decoding.

    Raises:
        ValueError: the message names the option.
    """
    from vanilla_transformer.decoding.engine.precision import check_precision
    from vanilla_transformer.evaluation.decoding import process_state
    from vanilla_transformer.evaluation.scores import corpus_metrics

    if options.hypotheses is None:
        require_one_model(words)
        if options.source is None:
            raise ValueError(
                "Give a text to translate with --source FILE, or its translations with --hypotheses FILE."
            )
    if options.glossary is not None and options.source is None:
        raise ValueError("Give the source text by --source FILE, in which the terms of --glossary are found.")
    if options.bootstrap_samples < 1:
        raise ValueError(f"`bootstrap_samples` must be 1 or more, got {options.bootstrap_samples}.")
    for path in (options.output_file, options.json):
        if path is not None and Path(path).is_dir():
            raise ValueError(f"Results must go to a file, but {path} is a folder.")
    if options.name is not None:
        if options.hypotheses is not None or not Path(words[0]).is_dir():
            raise ValueError("--name saves the scores in the model's folder, so a local model must translate.")
        check_record_name(options.name)
    if options.precision is not None:
        check_precision(options.precision)
    if parse_workers(options.workers) != 1 and process_state().num_processes > 1:
        raise ValueError(f"--workers is for one process, got {process_state().num_processes} of `accelerate launch`.")
    corpus_metrics(options.paper_bleu)


def _read_references(options: EvaluateArguments) -> list[str]:
    from vanilla_transformer.data.readers import read_lines, read_text_files

    # Reading the pairs checks them, but drops pairs with a blank side, which would shift the lines against the other
    # files. So the references are read again with blank lines, which count in no score.
    if options.source is not None:
        read_text_files(options.source, options.target)
    return read_lines(options.target)


def _read_aligned(path: str, references: Sequence[str], options: EvaluateArguments) -> list[str]:
    """Read the lines of `path`.

    Raises:
        ValueError: the file has more or fewer lines than the references.
    """
    from vanilla_transformer.data.readers import read_lines

    lines = read_lines(path)
    if len(lines) != len(references):
        raise ValueError(
            f"{path} must have one translation for each line of {options.target}, got {len(lines)} for "
            f"{len(references)}."
        )
    return lines


def _translate(name: str, options: EvaluateArguments, settings: Mapping[str, Any]) -> list[str]:
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.decoding.engine_workers import open_pipeline
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.evaluation.decoding import process_state, translate_on_all_processes

    assert options.source  # see `_check`
    sentences, workers = read_lines(options.source), parse_workers(options.workers)
    search, further = dict(settings), further_models(options)
    if workers != 1:
        with open_pipeline(name, workers, options.precision, options.num_beams, **further) as translate:
            search |= language_settings(translate.tokenizer, options)
            return [answer["translation_text"] for answer in translate(sentences, progress_bar=True, **search)]
    model, tokenizer = load_seq2seq(name, "translates"), load_tokenizer(name)
    model, search = model.to(process_state().device), search | language_settings(tokenizer, options)
    return translate_on_all_processes(
        model, tokenizer, sentences, progress_bar=True, precision=options.precision, further_models=further, **search
    )


def _write_results(hypotheses: Sequence[str], found: "Report", options: EvaluateArguments) -> None:
    if options.output_file is not None:
        write_text_atomically(options.output_file, "\n".join(hypotheses) + "\n")
    if options.json is not None:
        write_text_atomically(options.json, json.dumps(found.as_dict(), indent=2, ensure_ascii=False) + "\n")


def _save_for_card(
    folder: Path, hypotheses: Sequence[str], references: Sequence[str], found: "Report", options: EvaluateArguments
) -> None:
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.evaluation.report import worst_translations

    assert options.source and options.name  # see `_check`
    record = {
        "name": options.name,
        **found.as_dict(),
        "worst": worst_translations(read_lines(options.source), hypotheses, references),
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_text_atomically(folder / "evaluations" / f"{options.name.replace(' ', '_')}.json", text)
