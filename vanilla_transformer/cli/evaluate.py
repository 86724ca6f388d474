"""BLEU and chrF of a model, or of translations in a file, on a test set."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import parse

if TYPE_CHECKING:
    from vanilla_transformer.evaluation.report import Report

_USAGE = "evaluate FOLDER --source FILE --target FILE [--flags], or evaluate --hypotheses FILE --target FILE [--flags]"


@dataclass
class EvaluateArguments:
    """A test set, what to compare with, and where to put the results. Line n of each file belongs to line n."""

    target: str = field(metadata={"help": "Reference translations, one sentence a line."})
    source: str | None = field(default=None, metadata={"help": "Test text, source side; needed for decoding."})
    hypotheses: str | None = field(
        default=None, metadata={"help": "Score these translations in place of decoding; no model is read then."}
    )
    compare_with: str | None = field(
        default=None, metadata={"help": "Translations of a second system: paired bootstrap resampling against it."}
    )
    paper_bleu: str | None = field(
        default=None,
        metadata={
            "nargs": "?",
            "const": "de",
            "help": "Add the paper's BLEU, of Moses' tokens with compounds split, for this target language (de).",
        },
    )
    bootstrap_samples: int = field(default=1000, metadata={"help": "Resamples for intervals and p-values."})
    output_file: str | None = field(default=None, metadata={"help": "Write the translations there."})
    json: str | None = field(default=None, metadata={"help": "Write all scores there as JSON."})
    name: str | None = field(
        default=None,
        metadata={
            "help": "What the test set is called. The model's folder keeps the scores, and the worst translations, "
            "under this name for its card."
        },
    )
    num_beams: int | None = field(
        default=None, metadata={"help": "In place of the checkpoint's own (4 in the paper)."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(EvaluateArguments, arguments, _USAGE)
    from vanilla_transformer.evaluation.decoding import processes
    from vanilla_transformer.evaluation.report import report

    _check(words, options)
    references = _read_references(options)
    baseline = None if options.compare_with is None else _read_beside(options.compare_with, references, options)
    if options.hypotheses is not None:
        hypotheses = _read_beside(options.hypotheses, references, options)
    else:
        hypotheses = _translate(words[0], options)
    if processes().is_main_process:
        found = report(hypotheses, references, baseline, options.paper_bleu, options.bootstrap_samples)
        _write_results(hypotheses, found, options)
        if options.name is not None:
            _keep_for_the_card(Path(words[0]), hypotheses, references, found, options)
        print("\n".join(found.lines()))
    processes().destroy_process_group()


def _check(words: Sequence[str], options: EvaluateArguments) -> None:
    """What would otherwise be refused only after an hour of decoding."""
    from vanilla_transformer.evaluation.scores import corpus_metrics

    if options.hypotheses is None and len(words) != 1:
        raise ValueError(f"Name the folder (or Hub name) of one model before the flags, got {len(words)} names.")
    if options.hypotheses is None and options.source is None:
        raise ValueError("There must be a text to translate: --source FILE, or --hypotheses FILE in its place.")
    if options.bootstrap_samples < 1:
        raise ValueError(f"`bootstrap_samples` must be 1 or more, got {options.bootstrap_samples}.")
    for path in (options.output_file, options.json):
        if path is not None and Path(path).is_dir():
            raise ValueError(f"Results go to a file, but {path} is a folder.")
    if options.name is not None:
        if options.hypotheses is not None or not Path(words[0]).is_dir():
            raise ValueError(
                "`--name` keeps the scores in the folder of the model that translates, but there is none."
            )
        if not re.fullmatch(r"[\w .-]+", options.name):
            raise ValueError(f"`--name` must be of letters, digits, spaces, '.', '_' and '-', got {options.name!r}.")
    corpus_metrics(options.paper_bleu)


def _read_references(options: EvaluateArguments) -> list[str]:
    from vanilla_transformer.data.readers import read_lines, read_text_files

    # The pairs are read for their checks: blank ones are not among them, and without those the lines of the other
    # files would be against the wrong ones. A blank line counts in no score.
    if options.source is not None:
        read_text_files(options.source, options.target)
    return read_lines(options.target)


def _read_beside(path: str, references: Sequence[str], options: EvaluateArguments) -> list[str]:
    """
    Raises:
        ValueError: the file has not as many lines as the references.
    """
    from vanilla_transformer.data.readers import read_lines

    lines = read_lines(path)
    if len(lines) != len(references):
        raise ValueError(
            f"{path} must have one translation for each line of {options.target}, got {len(lines)} for "
            f"{len(references)}."
        )
    return lines


def _translate(name: str, options: EvaluateArguments) -> list[str]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.evaluation.decoding import processes, translate_on_all_processes

    assert options.source  # `_check` has seen to it
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    beams = {} if options.num_beams is None else {"num_beams": options.num_beams}
    model = model.to(processes().device)
    return translate_on_all_processes(model, tokenizer, read_lines(options.source), progress_bar=True, **beams)


def _write_results(hypotheses: Sequence[str], found: "Report", options: EvaluateArguments) -> None:
    if options.output_file is not None:
        _write(Path(options.output_file), "\n".join(hypotheses) + "\n")
    if options.json is not None:
        _write(Path(options.json), json.dumps(found.as_dict(), indent=2, ensure_ascii=False) + "\n")


def _keep_for_the_card(
    folder: Path, hypotheses: Sequence[str], references: Sequence[str], found: "Report", options: EvaluateArguments
) -> None:
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.evaluation.report import worst_translations

    assert options.source and options.name  # `_check` has seen to it
    record = {
        "name": options.name,
        **found.as_dict(),
        "worst": worst_translations(read_lines(options.source), hypotheses, references),
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    _write(folder / "evaluations" / f"{options.name.replace(' ', '_')}.json", text)


def _write(path: Path, text: str) -> None:
    """Writes beside the file and renames, so that a reader sees the old or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():  # a pipe or a terminal, which cannot be replaced
        path.write_text(text, encoding="utf-8")
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
