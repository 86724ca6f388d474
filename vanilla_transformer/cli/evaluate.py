"""Score translations."""

import json
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.user_input.schemas import ARGUMENT, INPUT, REPEATED, Input, Output

from .flags import (
    Count,
    EnsembleArguments,
    LanguageArguments,
    ModelNameArguments,
    OverwriteArguments,
    RayArguments,
    ThreadArguments,
    TranslationArguments,
    check_one_process,
    cluster_work,
    language_settings,
    model_names,
    open_model,
    parse,
    request_settings,
)
from .lines import print_texts

TableFormat = Literal["markdown", "csv", "latex"]

if TYPE_CHECKING:
    from vanilla_transformer.data.readers import SentencePair
    from vanilla_transformer.evaluation.model_comparison import ModelComparison
    from vanilla_transformer.evaluation.pair_scores import PairScorer
    from vanilla_transformer.evaluation.quality_report import Setup
    from vanilla_transformer.evaluation.test_sets import TestSet


# Flags of translation that may also be given with translations of a file, and `model`, which has
# its own check.
_OF_SCORING = {"model", "glossary", "term_mode", "glossary_casefold"}
_OF_SCORING |= {*ThreadArguments.model_fields, *LanguageArguments.model_fields}


class EvaluateArguments(TranslationArguments, OverwriteArguments):
    """Flags of `evaluate`. All text files are aligned line by line."""

    model: Annotated[str, ARGUMENT, INPUT] = Field(
        "",
        description=(
            "Folder of a model, or its name on the Hugging Face Hub, unless --hypotheses is given."
        ),
    )
    target: Annotated[list[Input], REPEATED] = Field(
        description=(
            "Reference translations, one sentence per line. Give it again for further references."
        )
    )
    source: Input | None = Field(
        None, description="Source text to translate; required unless --hypotheses is given."
    )
    hypotheses: Input | None = Field(
        None, description="Score the translations in this file instead of translating with a model."
    )
    compare_with: Input | None = Field(
        None,
        description="Translations of a baseline system, compared by paired bootstrap resampling.",
    )
    paper_bleu: str | None = Field(
        None,
        json_schema_extra={"alone": "de"},
        description=(
            "Add the paper's BLEU (Moses tokens, compounds split) for this target "
            "language, by default de."
        ),
    )
    tokenize: str | None = Field(
        None,
        description="Tokens of BLEU, by their name in sacreBLEU, such as zh, char or flores200. By "
        "default the script of the references chooses them.",
    )
    metric: list[str] = Field(
        [],
        description="Add further metrics: chrf++, ter, accuracy (texts that equal a reference), "
        "accuracy@5 (among the best 5 translations), loss, comet (or comet:MODEL), metrics of the "
        "evaluate library, or functions of sources, hypotheses and references, such as "
        "package.module:name.",
    )
    bootstrap_samples: Count = Field(
        1000, description="Number of resamples for confidence intervals and p-values."
    )
    output_file: Output | None = Field(None, description="Write the translations to this file.")
    json_file: Output | None = Field(
        None, alias="json", description="Write all scores to this file as JSON."
    )
    report: Output | None = Field(
        None,
        pattern=r"(?i)\.html?$",
        title="an HTML file, such as report.html",
        description="Write a report for readers who are no engineers to this file, such as "
        "report.html: scores and their meaning, the comparison, examples, warnings, speed, and "
        "how to reproduce it.",
    )
    name: str | None = Field(
        None,
        description="Name of the test set. Scores and worst translations are saved in the model's "
        "folder under this name, for its card.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> "EvaluateArguments":
        if self.hypotheses is not None:
            if self.model:
                values = f"got {self.model!r} and {self.hypotheses!r}"
                raise UserError(f"Give a model or its --hypotheses, not both, {values}.")
            for name in TranslationArguments.model_fields:
                if name in self.model_fields_set and name not in _OF_SCORING:
                    raise UserError(
                        f"--{name} is for a model that translates, got it with --hypotheses. Leave "
                        "it out."
                    )
            if self.name is not None or "loss" in self.metric:
                raise UserError(
                    "--name and the metric loss are of a model that translates, got --hypotheses "
                    "instead."
                )
        elif not self.model or self.source is None:
            raise UserError(
                "Give a MODEL and its text by --source FILE, or translations by --hypotheses FILE."
            )
        if self.metric or self.glossary is not None:
            from vanilla_transformer.evaluation.named_metrics import OF_N_BEST, SACRE_METRICS

            has_baseline = self.compare_with is not None or self.glossary is not None
            if not OF_N_BEST.keys().isdisjoint(self.metric) and (
                self.hypotheses is not None or has_baseline or self.samples
            ):
                raise UserError(
                    "Metrics such as accuracy@5 must be measured by beam search of one model, "
                    "got --hypotheses, --compare_with, --glossary, --do_sample or --mbr. Leave one "
                    "of them out."
                )
            others = [name for name in self.metric if name not in SACRE_METRICS]
            count = len(self.target)
            if others and count > 1:
                raise UserError(
                    f"The metric {others[0]} takes one reference, got {count}. Give one --target, "
                    "or leave it out."
                )
            if self.source is None and (others or self.glossary is not None):
                raise UserError(
                    "Give the source text by --source FILE, which --glossary and metrics may read."
                )
        return self


def evaluate_command(arguments: Sequence[str]) -> None:
    options = parse(EvaluateArguments, arguments)
    check_one_process("--workers for several processes")
    from vanilla_transformer.evaluation.named_metrics import (
        OF_N_BEST,
        OWN_METRICS,
        SACRE_METRICS,
        load_metric,
    )
    from vanilla_transformer.evaluation.scores import corpus_metrics
    from vanilla_transformer.evaluation.significance import worst_translations
    from vanilla_transformer.evaluation.test_sets import evaluate_test_set, read_test_set
    from vanilla_transformer.publishing.run_records import (
        EVALUATIONS,
        check_record_name,
        save_record,
    )

    # What does not fit the model is found before an hour of decoding.
    if options.name is not None:
        if not Path(options.model).is_dir():
            raise UserError(
                "--name saves the scores in the model's folder, so a local model must translate."
            )
        check_record_name(options.name)
    metrics = dict.fromkeys(options.metric)
    further = [name for name in metrics if name in SACRE_METRICS]
    scoring = partial(
        corpus_metrics,
        paper_language=options.paper_bleu,
        tokenize=options.tokenize,
        further=further,
    )
    setup = None if options.report is None else _describe_setup(options, arguments)
    best = max(OF_N_BEST.get(name, 1) for name in ("", *metrics))
    scoring()  # names an unknown tokenizer or language
    functions = {}
    for name in metrics:
        if name not in OWN_METRICS and name not in further:
            functions[name] = load_metric(name)
    texts = read_test_set(
        options.source,
        options.target[0],
        options.hypotheses,
        options.compare_with,
        options.target[1:],
    )
    opening = glossary = None
    if options.model:
        opening = open_model(options)
    else:
        glossary = request_settings(options).get("glossary")
    evaluation = evaluate_test_set(
        texts,
        opening,
        functions,
        with_loss="loss" in metrics,
        scoring=scoring,
        samples=options.bootstrap_samples,
        glossary=glossary,
        best=best,
    )
    report = evaluation.report
    if options.output_file is not None:
        translations = "\n".join(evaluation.hypotheses) + "\n"
        write_text_atomically(options.output_file, translations)
    if options.json_file is not None:
        _write_json(options.json_file, report.as_dict())
    if options.name is not None:
        worst = worst_translations(
            evaluation.sources,
            evaluation.hypotheses,
            evaluation.references,
            evaluation.further_references,
        )
        record = {**report.as_dict(), "worst": worst}
        save_record(options.model, EVALUATIONS, options.name, record)
    print("\n".join(report.lines()))
    if setup is not None and options.report is not None:
        from vanilla_transformer.evaluation.quality_report import render_report

        page = render_report(evaluation, setup)
        write_text_atomically(options.report, page)
        print(f"The report is {options.report}.")


def _describe_setup(options: EvaluateArguments, arguments: Sequence[str]) -> "Setup":
    """Return how the evaluation is made, for its report; read before an hour of decoding."""
    from vanilla_transformer import __version__
    from vanilla_transformer.decoding.pretrained import load_config
    from vanilla_transformer.evaluation.quality_report import Setup
    from vanilla_transformer.machine.cores import describe_hardware, process_state
    from vanilla_transformer.publishing.card import training_facts
    from vanilla_transformer.text.translation_warnings import WarningLimits

    name = options.model or None
    files = {label: getattr(options, name) for name, label in _READ.items()}
    files["Reference"], *further = options.target
    files |= {f"Reference {number}": path for number, path in enumerate(further, 2)}
    baseline = None
    if options.compare_with is not None:
        baseline = Path(options.compare_with).name
    elif options.glossary is not None:
        baseline = "the same model without the glossary"
    system = name or str(options.hypotheses)
    path = Path(system).resolve()
    if path.exists():
        # The name of a run says more than a step.
        parts = 2 if path.name.startswith("checkpoint-") else 1
        system = "/".join(path.parts[-parts:])
    models: list[str] = []
    limits = WarningLimits()
    training = {}
    if name is not None:
        models = model_names(name, options)
        limits = WarningLimits.from_config(load_config(name))
        if Path(name).is_dir():
            training = training_facts(name)
    return Setup(
        system=system,
        command=shlex.join(["vanilla-transformer", "evaluate", *arguments]),
        version=__version__,
        models=models,
        files={label: path for label, path in files.items() if path is not None},
        baseline=baseline,
        limits=limits,
        languages=(options.source_language, options.target_language),
        hardware=describe_hardware(process_state().device),
        training=training,
    )


# Flags of files, and their labels in the report.
_READ = {
    "source": "Source",
    "target": "Reference",
    "hypotheses": "Translations",
    "compare_with": "Compared with",
    "glossary": "Glossary",
}


def _write_json(path: str, values: object) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    write_text_atomically(path, text + "\n")


class ComparisonArguments(TranslationArguments):
    """Flags of a comparison of two models."""

    max_score_drop: Annotated[float, Field(ge=0, le=100)] = Field(
        0.0,
        description="Points of BLEU and chrF by which the new model may be significantly worse "
        "(p < 0.05).",
    )
    max_lost: Annotated[int, Field(ge=0, le=10**9)] = Field(
        0,
        description="Further sentences that may lose numbers, and further texts to keep and terms "
        "of the glossary that may be lost.",
    )
    max_time_ratio: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        None, description="Most time of the new model, divided by the time of the old one."
    )
    max_size_ratio: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        None, description="Most parameters of the new model, divided by the old one's."
    )
    changes: Annotated[int, Field(ge=0, le=10**6)] = Field(
        10, description="Changed sentences to show, the ones whose chrF changed most."
    )
    bootstrap_samples: Count = Field(1000, description="Number of resamples for p-values.")


class CompareModelsArguments(ComparisonArguments, OverwriteArguments):
    """Flags of `compare-models`. All text files are aligned line by line."""

    model: Annotated[str, ARGUMENT, INPUT] = Field(
        title="OLD", description="Folder of the old model, or its name on the Hugging Face Hub."
    )
    new: Annotated[str, ARGUMENT, INPUT] = Field(
        description="Folder of the new model, or its name on the Hugging Face Hub."
    )
    source: Input = Field(description="Source text to translate, one sentence per line.")
    target: Annotated[list[Input], REPEATED] = Field(
        description="Reference translations. Give it again for further references."
    )
    json_file: Output | None = Field(
        None, alias="json", description="Write the comparison to this file as JSON."
    )


def compare_by_flags(
    options: ComparisonArguments, old: str, new: str, texts: "TestSet"
) -> tuple["ModelComparison", list[str]]:
    """Translate a text by two models with the same flags, and return their comparison, with a line
    for each way in which the new model is worse than the flags permit.
    """
    from vanilla_transformer.decoding.pretrained import load_config
    from vanilla_transformer.evaluation.model_comparison import (
        WorstLosses,
        compare_outputs,
        translate_test_set,
    )

    load_config(new)  # names a mistake before the old model translates
    glossary = request_settings(options).get("glossary")
    old_opening = open_model(options.model_copy(update={"model": old}))
    new_opening = open_model(options.model_copy(update={"model": new}))
    old_output = translate_test_set(old_opening, texts.sources)
    new_output = translate_test_set(new_opening, texts.sources)
    samples = options.bootstrap_samples
    comparison = compare_outputs(texts, old_output, new_output, samples, glossary)
    worst = WorstLosses(
        options.max_score_drop, options.max_lost, options.max_time_ratio, options.max_size_ratio
    )
    return comparison, comparison.find_losses(worst)


def compare_models_command(arguments: Sequence[str]) -> None:
    options = parse(CompareModelsArguments, arguments)
    check_one_process("--workers for several processes")
    from vanilla_transformer.evaluation.test_sets import read_test_set

    first, *further = options.target
    texts = read_test_set(options.source, first, further_targets=further)
    comparison, losses = compare_by_flags(options, options.model, options.new, texts)
    if options.json_file is not None:
        _write_json(options.json_file, comparison.as_dict(losses, options.changes))
    print(comparison.markdown(losses, options.changes))
    if losses:
        raise SystemExit(f"{options.new} is worse than {options.model}: {'; '.join(losses)}.")


class EvaluateDirectionsArguments(TranslationArguments, OverwriteArguments):
    """Flags of `evaluate-directions`."""

    text: str = Field(
        description=(
            "Start of the names of text files: PREFIX for PREFIX.en, PREFIX.de, …, aligned by line."
        )
    )
    directions: list[str] | None = Field(
        None,
        description=(
            "Directions such as en-de de-en. Default: all between languages that have a file."
        ),
    )
    json_file: Output | None = Field(
        None, alias="json", description="Write all scores to this file as JSON."
    )
    format: TableFormat = Field("markdown", description="Format of the table.")

    def further_inputs(self) -> list[str | Path | int]:
        """Return the text files."""
        prefix = Path(self.text)
        return [*prefix.parent.glob(f"{prefix.name}.*")]


def evaluate_directions_command(arguments: Sequence[str]) -> None:
    options = parse(EvaluateDirectionsArguments, arguments)
    check_one_process("--workers for several processes")
    name = options.model
    source_language, target_language = options.source_language, options.target_language
    if source_language is not None or target_language is not None:
        raise UserError(
            "`source_language` and `target_language` are for one direction. Give --directions "
            "instead."
        )
    opening = open_model(options)
    from vanilla_transformer.decoding.pretrained import load_tokenizer
    from vanilla_transformer.evaluation.directions import (
        parse_directions,
        read_test_sets,
        score_directions,
    )
    from vanilla_transformer.evaluation.tables import render_table
    from vanilla_transformer.text.languages import find_languages

    languages = find_languages(load_tokenizer(name))
    if languages is None:
        raise UserError(
            f"The model must have several languages, but {name} has none. Use `evaluate` for it."
        )
    chosen = None
    if options.directions is not None:
        chosen = parse_directions(options.directions, languages)
    directions, texts = read_test_sets(options.text, chosen, languages)
    with opening as translate:
        results = score_directions(translate, languages, directions, texts)
    if options.json_file is not None:
        scores = [result.as_dict() for result in results]
        _write_json(options.json_file, scores)
    rows = [result.as_row() for result in results]
    print(render_table(rows, options.format))


class CompareRunsArguments(OverwriteArguments):
    """Flags of `compare-runs`."""

    runs: Annotated[list[Input], ARGUMENT] = Field(
        description="Folders of runs, which have a metrics.jsonl."
    )
    format: TableFormat = Field("markdown", description="Format of the table.")
    plot: Output | None = Field(
        None, description="Draw the curves of all runs to this file, such as runs.png."
    )
    over: Literal["minutes", "step"] = Field(
        "minutes", description="The horizontal axis of the curves."
    )


def compare_runs_command(arguments: Sequence[str]) -> None:
    options = parse(CompareRunsArguments, arguments)
    from vanilla_transformer.evaluation.tables import compare_runs, render_table

    print(render_table(compare_runs(options.runs), options.format))
    if options.plot is not None:
        from vanilla_transformer.evaluation.plots import plot_runs

        plot_runs(options.runs, options.plot, options.over)


class ScoreArguments(
    ModelNameArguments,
    EnsembleArguments,
    LanguageArguments,
    RayArguments,
    ThreadArguments,
    OverwriteArguments,
):
    """Flags of `score`.

    The text files are aligned line by line; a blank line is an empty sentence.
    """

    source: Input = Field(
        description="Source text, one sentence per line, or a folder of such files."
    )
    target: Input = Field(
        description="Translations to score, one per line, or a folder with files of the same names."
    )
    as_json: bool = Field(
        False,
        alias="json",
        description=(
            "Write a JSON object per line, with the log-probability of each token of the "
            "translation."
        ),
    )
    output: Output | None = Field(
        None, description="Write to this file instead of standard output."
    )
    resume: bool = Field(
        False, description="With `--engine ray`: continue an interrupted `--output`."
    )
    max_tokens: Annotated[int, Field(ge=1, le=10**7)] = Field(
        2048, description="Maximum number of tokens per batch, padding included."
    )

    @model_validator(mode="after")
    def _check_resume(self) -> "ScoreArguments":
        if self.resume and self.engine is None:
            raise UserError("--resume is for --engine ray. Leave it out.")
        return self


def score_command(arguments: Sequence[str]) -> None:
    options = parse(ScoreArguments, arguments)

    # Mistakes in the text are found before an hour of work.
    total = sum(1 for _ in _stream_pairs(options))
    work = cluster_work(options, partial(_open_scorer, options))
    if work is None or options.output is None:
        texts, pairs = _stream_pairs(options), _stream_pairs(options)
        scored = _open_scorer(options).describe(texts, pairs, total)
        print_texts((f"{line}\n" for line in scored), options.output)
        return
    from vanilla_transformer.decoding.corpus_shards import write_shards
    from vanilla_transformer.decoding.pretrained import hash_model
    from vanilla_transformer.evaluation.pair_scores import WINDOW
    from vanilla_transformer.files.text_folders import hash_texts

    chosen = ("as_json", "max_tokens", "ensemble_weights", "source_language", "target_language")
    models = [options.model, *(options.ensemble or [])]
    origin = {
        "input": [hash_texts(options.source), hash_texts(options.target)],
        "model": [hash_model(name) for name in models],
        "options": {name: getattr(options, name) for name in chosen},
    }
    pairs = _stream_pairs(options)
    lines = (f"{pair.source}\n{pair.target}" for pair in pairs)
    path = Path(options.output)
    write_shards(path, lines, total, origin, WINDOW, options.resume, work)


def _stream_pairs(options: ScoreArguments) -> Iterator["SentencePair"]:
    """Yield the pairs of two files, or of the files of two folders."""
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.files.text_folders import text_files

    sources = text_files(options.source, options.output)
    targets = text_files(options.target, options.output)
    if Path(options.source).is_dir() or Path(options.target).is_dir():
        names = [file.relative_to(options.source) for file in sources]
        if names != [file.relative_to(options.target) for file in targets]:
            raise UserError(
                f"Two folders to score must have files of the same names, but {options.source} and "
                f"{options.target} have others. Rename them."
            )
    for source, target in zip(sources, targets, strict=True):
        yield from stream_text_files(source, target)


def _open_scorer(options: ScoreArguments) -> "PairScorer":
    from vanilla_transformer.evaluation.pair_scores import PairScorer

    return PairScorer(
        options.model,
        options.ensemble,
        options.ensemble_weights,
        partial(language_settings, options=options),
        options.max_tokens,
        options.as_json,
    )
