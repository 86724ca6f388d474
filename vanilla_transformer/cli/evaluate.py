"""Score translations."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.file_utils import write_text_atomically

from .flags import (
    MODEL,
    EnsembleArguments,
    LanguageArguments,
    ModelArguments,
    RayArguments,
    SearchArguments,
    ThreadArguments,
    TranslationArguments,
    check_engine,
    check_workers,
    given_flags,
    language_settings,
    model_names,
    open_model,
    parse,
    request_settings,
    require_one_model,
)
from .lines import print_texts

if TYPE_CHECKING:
    from vanilla_transformer.evaluation.pair_scores import PairScorer
    from vanilla_transformer.evaluation.quality_report import Setup

_EVALUATE_USAGE = (
    "evaluate MODEL --source FILE --target FILE [--flags], or evaluate --hypotheses FILE --target FILE [--flags]"
)
# The flags that `--help` shows.
_EVALUATE_MAIN = [
    "target",
    "source",
    "hypotheses",
    "compare_with",
    "paper_bleu",
    "tokenize",
    "metric",
    "output_file",
    "json",
    "report",
    "name",
    "num_beams",
    "source_language",
    "target_language",
    "glossary",
]


@dataclass
class _TestSetArguments:
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
    tokenize: str | None = field(
        default=None,
        metadata={
            "help": "Tokens of BLEU, by their name in sacreBLEU, such as zh, char or flores200. By default the script "
            "of the references chooses them."
        },
    )
    metric: list[str] | None = field(
        default=None,
        metadata={
            "help": "Add further metrics: chrf++, ter, loss, comet (or comet:MODEL), metrics of the evaluate "
            "library, or functions of sources, hypotheses and references, such as package.module:name.",
        },
    )
    bootstrap_samples: int = field(
        default=1000, metadata={"help": "Number of resamples for confidence intervals and p-values."}
    )
    output_file: str | None = field(default=None, metadata={"help": "Write the translations to this file."})
    json: str | None = field(default=None, metadata={"help": "Write all scores to this file as JSON."})
    report: str | None = field(
        default=None,
        metadata={
            "help": "Write a report for readers who are no engineers to this file, such as report.html: scores and "
            "their meaning, the comparison, examples, warnings, speed, and how to reproduce it."
        },
    )
    name: str | None = field(
        default=None,
        metadata={
            "help": "Name of the test set. Scores and worst translations are saved in the model's folder under this "
            "name, for its card."
        },
    )


@dataclass
class EvaluateArguments(TranslationArguments, _TestSetArguments):
    """Flags of `evaluate`."""


def evaluate_command(arguments: Sequence[str]) -> None:
    words, options = parse(EvaluateArguments, arguments, _EVALUATE_USAGE, MODEL, _EVALUATE_MAIN)
    from vanilla_transformer.evaluation.named_metrics import OWN_METRICS, SACRE_METRICS, load_metric
    from vanilla_transformer.evaluation.scores import corpus_metrics
    from vanilla_transformer.evaluation.test_sets import evaluate_test_set, read_test_set
    from vanilla_transformer.publishing.run_records import EVALUATIONS, save_record
    from vanilla_transformer.utils.device_utils import process_state

    _check_evaluate(words, options)
    metrics = dict.fromkeys(options.metric or ())
    further = [name for name in metrics if name in SACRE_METRICS]
    scoring = partial(corpus_metrics, paper_language=options.paper_bleu, tokenize=options.tokenize, further=further)
    setup = None if options.report is None else _describe_setup(words, options, arguments)
    scoring()  # an unknown tokenizer or language is found before an hour of decoding
    functions = {name: load_metric(name) for name in metrics if name not in (*OWN_METRICS, *further)}
    found = evaluate_test_set(
        read_test_set(options.source, options.target, options.hypotheses, options.compare_with),
        open_model(words[0], options) if words else None,
        functions,
        with_loss="loss" in metrics,
        scoring=scoring,
        samples=options.bootstrap_samples,
        glossary=None if words else request_settings(options).get("glossary"),
    )
    if found is not None:  # on the main process
        if options.output_file is not None:
            write_text_atomically(options.output_file, "\n".join(found.hypotheses) + "\n")
        if options.json is not None:
            _write_json(options.json, found.report.as_dict())
        if options.name is not None:
            save_record(words[0], EVALUATIONS, options.name, found.as_record())
        print("\n".join(found.report.lines()))
        if setup is not None and options.report is not None:
            from vanilla_transformer.evaluation.quality_report import render_report

            write_text_atomically(options.report, render_report(found, setup))
            print(f"The report is {options.report}.")
    process_state().destroy_process_group()


def _describe_setup(words: Sequence[str], options: EvaluateArguments, arguments: Sequence[str]) -> "Setup":
    """Return how the evaluation is made, for its report; read before an hour of decoding."""
    from vanilla_transformer import __version__
    from vanilla_transformer.decoding.pretrained import load_config
    from vanilla_transformer.evaluation.quality_report import Setup
    from vanilla_transformer.publishing.card import training_facts
    from vanilla_transformer.text.translation_warnings import WarningLimits
    from vanilla_transformer.utils.device_utils import describe_hardware, process_state

    name = words[0] if words else None
    shown = name or str(options.hypotheses)
    state, files = process_state(), {label: getattr(options, name) for name, label in _READ.items()}
    baseline = None if options.glossary is None else "the same model without the glossary"
    return Setup(
        system=Path(shown).resolve().name if Path(shown).exists() else shown,
        command=shlex.join(["vanilla-transformer", "evaluate", *arguments]),
        version=__version__,
        models=[] if name is None else model_names(name, options),
        files={label: path for label, path in files.items() if path is not None},
        baseline=baseline if options.compare_with is None else Path(options.compare_with).name,
        limits=WarningLimits() if name is None else WarningLimits.from_config(load_config(name)),
        languages=(options.source_language, options.target_language),
        hardware=describe_hardware(state.device, state.num_processes),
        training=training_facts(name) if name is not None and Path(name).is_dir() else {},
    )


# Flags of files, and their labels in the report.
_READ = {
    "source": "Source",
    "target": "Reference",
    "hypotheses": "Translations",
    "compare_with": "Compared with",
    "glossary": "Glossary",
}


def _write_json(path: str, values: Any) -> None:
    write_text_atomically(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def _check_evaluate(words: Sequence[str], options: EvaluateArguments) -> None:
    """Refuse invalid options before an hour of decoding."""
    from vanilla_transformer.decoding.loading import find_backend
    from vanilla_transformer.evaluation.named_metrics import SACRE_METRICS
    from vanilla_transformer.publishing.run_records import check_record_name
    from vanilla_transformer.utils.device_utils import process_state

    if options.hypotheses is not None:
        if words:
            raise UserError(
                f"Give a model or its --hypotheses, not both, got {words[0]!r} and {options.hypotheses!r}."
            )
        of_models = [item.name for group in (SearchArguments, ModelArguments) for item in fields(group)]
        for name in (each for each in of_models if each in given_flags(options) and each != "threads"):
            raise UserError(f"--{name} is for a model that translates, got it with --hypotheses. Leave it out.")
    else:
        require_one_model(words)
        if options.source is None:
            raise UserError("Give a text to translate with --source FILE, or its translations with --hypotheses FILE.")
    if options.source is None and not SACRE_METRICS.keys() >= {*(options.metric or ())}:
        raise UserError("Give the source text by --source FILE, which the metrics of --metric may read.")
    if "loss" in (options.metric or ()) and options.hypotheses is not None:
        raise UserError("The metric loss is of a model, so a model must translate. Leave out --hypotheses.")
    if "loss" in (options.metric or ()) and (backend := options.backend or find_backend(words[0])) is not None:
        raise UserError(f"The metric loss is of a model that PyTorch decodes, but `backend` is {backend!r}.")
    if options.glossary is not None and options.source is None:
        raise UserError("Give the source text by --source FILE, in which the terms of --glossary are found.")
    if options.bootstrap_samples < 1:
        raise UserError(f"`bootstrap_samples` must be 1 or more, got {options.bootstrap_samples}.")
    if options.name is not None:
        if options.hypotheses is not None or not Path(words[0]).is_dir():
            raise UserError("--name saves the scores in the model's folder, so a local model must translate.")
        check_record_name(options.name)
    if options.report is not None and Path(options.report).suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--report must be an HTML file, such as report.html, got {options.report!r}.")
    if check_workers(options.workers) != 1 and process_state().num_processes > 1:
        raise UserError(f"--workers is for one process, got {process_state().num_processes} of `accelerate launch`.")


_DIRECTIONS_MAIN = ("text", "directions", "json", "precision", "num_beams")  # the flags that `--help` shows


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


@dataclass
class EvaluateDirectionsArguments(TranslationArguments, _DirectionArguments):
    """Flags of `evaluate-directions`."""


def evaluate_directions_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        EvaluateDirectionsArguments,
        arguments,
        "evaluate-directions MODEL --text PREFIX [--directions en-de ...]",
        MODEL,
        _DIRECTIONS_MAIN,
    )
    from vanilla_transformer.utils.device_utils import process_state

    name = require_one_model(words)
    if options.source_language is not None or options.target_language is not None:
        raise UserError("`source_language` and `target_language` are for one direction. Give --directions instead.")
    opening = open_model(name, options)
    from vanilla_transformer.decoding.pretrained import load_tokenizer
    from vanilla_transformer.evaluation.directions import (
        format_scores,
        parse_directions,
        read_test_sets,
        score_directions,
    )
    from vanilla_transformer.text.languages import find_languages

    languages = find_languages(load_tokenizer(name))
    if languages is None:
        raise UserError(f"The model must have several languages, but {name} has none. Use `evaluate` for it.")
    wanted = None if options.directions is None else parse_directions(options.directions, languages)
    directions, texts = read_test_sets(options.text, wanted, languages)
    with opening as translate:
        results = score_directions(translate, languages, directions, texts)
    if process_state().is_main_process:
        if options.json is not None:
            _write_json(options.json, [result.as_dict() for result in results])
        print(format_scores(results))
    process_state().destroy_process_group()


@dataclass
class _ScoredTextArguments:
    """Flags of the text, and of the scores."""

    source: str = field(metadata={"help": "Source text, one sentence per line."})
    target: str = field(metadata={"help": "Translations to score, one per line."})
    json: bool = field(
        default=False,
        metadata={"help": "Write a JSON object per line, with the log-probability of each token of the translation."},
    )
    output: str | None = field(default=None, metadata={"help": "Write to this file instead of standard output."})
    resume: bool = field(default=False, metadata={"help": "With `--engine ray`: continue an interrupted `--output`."})
    max_tokens: int = field(default=2048, metadata={"help": "Maximum number of tokens per batch, padding included."})


@dataclass
class ScoreArguments(EnsembleArguments, LanguageArguments, RayArguments, ThreadArguments, _ScoredTextArguments):
    """Flags of `score`. The text files are aligned line by line; a blank line is an empty sentence."""


def score_command(arguments: Sequence[str]) -> None:
    words, options = parse(ScoreArguments, arguments, "score MODEL --source FILE --target FILE [--flags]", MODEL)
    name = require_one_model(words)
    if options.max_tokens < 1:
        raise UserError(f"`max_tokens` must be 1 or more, got {options.max_tokens}.")
    check_engine(options)
    if options.resume and options.engine is None:
        raise UserError("--resume is for --engine ray. Leave it out.")
    from vanilla_transformer.data.readers import stream_text_files

    total = sum(1 for _ in stream_text_files(options.source, options.target))  # before an hour of work
    if options.engine == "ray" and options.output is not None:
        _write_by_ray(name, options, Path(options.output), total)
        return
    lines = _score_lines(name, options, total)
    if options.output is not None:
        write_text_atomically(options.output, lines)
    else:
        print_texts(lines)


def _score_lines(name: str, options: ScoreArguments, total: int) -> Iterator[str]:
    from vanilla_transformer.data.readers import stream_text_files

    texts, pairs = (stream_text_files(options.source, options.target) for _ in range(2))
    yield from (f"{line}\n" for line in _open_scorer(name, options).describe(texts, pairs, total))


def _open_scorer(name: str, options: ScoreArguments) -> "PairScorer":
    from vanilla_transformer.evaluation.pair_scores import PairScorer

    models, languages = (options.ensemble, options.ensemble_weights), partial(language_settings, options=options)
    return PairScorer(name, *models, languages, options.max_tokens, options.json)


def _write_by_ray(name: str, options: ScoreArguments, output: Path, total: int) -> None:
    """Write the scores by the workers of a cluster."""
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.decoding.corpus_shards import write_shards
    from vanilla_transformer.decoding.pretrained import hash_model
    from vanilla_transformer.evaluation.pair_scores import WINDOW
    from vanilla_transformer.extensions.scale_out import work_by_ray
    from vanilla_transformer.utils.file_utils import hash_file

    chosen = {name: getattr(options, name) for name in ("json", "max_tokens", "ensemble_weights", "source_language")}
    models = [hash_model(each) for each in (name, *(options.ensemble or []))]
    origin = {"input": [hash_file(Path(each)) for each in (options.source, options.target)], "model": models}
    origin["options"] = chosen | {"target_language": options.target_language}
    lines = (f"{pair.source}\n{pair.target}" for pair in stream_text_files(options.source, options.target))
    build, workers = partial(_open_scorer, name, options), options.ray_workers
    work = partial(work_by_ray, build=build, total=total, workers=workers, threads=options.ray_threads)
    write_shards(output, lines, total, origin, WINDOW, options.resume, work)
