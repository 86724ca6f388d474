"""Translate the text of a test set by a model, or read its translations, and report how good they are."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from vanilla_transformer.data.readers import read_lines, read_text_files
from vanilla_transformer.decoding.loading import open_pipeline
from vanilla_transformer.decoding.options import TERMS
from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
from vanilla_transformer.utils.device_utils import process_state

from .named_metrics import OWN_METRICS, load_metric
from .pair_scores import PairScorer
from .scores import corpus_metrics, measure_metrics, translate_on_all_processes
from .significance import Report, Scoring, build_report, worst_translations

Languages = Callable[[Any], Mapping[str, str]]  # returns `src_lang` and `tgt_lang` for a tokenizer that has several


class Evaluation(NamedTuple):
    """
    The lines of a test set and of its translations, and how good these are. Without a source text, `sources` is empty.

    Attributes:
        baseline: Translations of the other system, if there is one.
        seconds: Time of translation, without the time to load the model; None if translations were read.
    """

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    report: Report
    baseline: list[str] | None = None
    seconds: float | None = None

    def as_record(self) -> dict[str, Any]:
        """Return plain values for the card of the model: the report and the worst translations."""
        return {**self.report.as_dict(), "worst": worst_translations(self.sources, self.hypotheses, self.references)}


def evaluate_test_set(
    name: str | None,
    source: str | None,
    target: str,
    hypotheses: str | None = None,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    scoring: Scoring = corpus_metrics,
    samples: int = 1000,
    languages: Languages = lambda tokenizer: {},
    search: Mapping[str, Any] | None = None,
    further_models: Mapping[str, Any] | None = None,
    precision: str | None = None,
    workers: int | str = 1,
) -> Evaluation | None:
    """
    Score the translations of a test set, whose files are aligned line by line.

    With several processes, all must call this function. Each translates its share, and all but the main one return
    None.

    Args:
        name: Folder or Hub name of the model that translates, unless `hypotheses` are given.
        source: File of the source text, which the model, metrics and glossaries need.
        target: File of the references.
        hypotheses: File of translations.
        baseline: File of the translations with which these are compared. By default, a glossary is compared with the
            same model without it.
        metrics: `loss`, and further metrics by name, see [`load_metric`].
        scoring, samples: See [`build_report`].
        search: Keyword arguments of the pipeline.
        further_models: An ensemble or a reranker, see [`TranslationPipeline`].
        precision, workers: See [`open_pipeline`].

    Raises:
        ValueError: Files are not aligned, a metric is unknown or fails, or the model or its options do not fit.
    """
    search, further_models = search or {}, further_models or {}
    functions = {metric: load_metric(metric) for metric in metrics if metric not in OWN_METRICS}
    # Reading the pairs checks them, but drops blank ones, which would shift the lines against the other files. So the
    # references are read again with blank lines, which count in no score or metric.
    if source is not None:
        read_text_files(source, target)
    references = read_lines(target)
    sources = [] if source is None else read_lines(source)
    others = None if baseline is None else _read_aligned(baseline, target, references)
    seconds = None
    if hypotheses is not None:
        translations = _read_aligned(hypotheses, target, references)
    else:
        assert name is not None
        model = (name, sources, languages, further_models, precision, workers)
        translations, seconds = _translate(*model, search)
        if search.get("glossary") is not None and others is None:
            others, _ = _translate(*model, {key: value for key, value in search.items() if key not in TERMS})
    rows = [row for row, reference in enumerate(references) if reference]
    scored = ([side[row] for row in rows if side] for side in (sources, translations, references))
    values = measure_metrics(functions, *scored) if functions else {}
    if not process_state().is_main_process:
        return None
    if "loss" in metrics:
        assert name is not None
        ensemble = further_models.get("ensemble"), further_models.get("ensemble_weights")
        values["loss"] = PairScorer(name, *ensemble, languages).loss(
            pair for pair in zip(sources, references, strict=True) if any(pair)
        )
    report = build_report(translations, references, others, scoring, samples, values)
    if sources and search.get("glossary") is not None:
        systems = [translations, *([] if others is None else [others])]
        report = replace(report, term_uses=[search["glossary"].measure_use(sources, each) for each in systems])
    return Evaluation(sources, references, translations, report, others, seconds)


def _read_aligned(path: str, target: str, references: Sequence[str]) -> list[str]:
    """Read the lines of a file.

    Raises:
        ValueError: It has more or fewer lines than the references.
    """
    lines = read_lines(path)
    if len(lines) != len(references):
        rule = f"{path} must have one translation for each line of {target}"
        raise ValueError(f"{rule}, got {len(lines)} for {len(references)}.")
    return lines


def _translate(
    name: str,
    sentences: Sequence[str],
    languages: Languages,
    further_models: Mapping[str, Any],
    precision: str | None,
    workers: int | str,
    search: Mapping[str, Any],
) -> tuple[list[str], float]:
    """Return the translations, and the seconds that they took."""
    options = dict(search)
    if workers != 1:
        with open_pipeline(name, workers, precision, search.get("num_beams"), **further_models) as translate:
            options |= languages(translate.tokenizer)
            start = time.perf_counter()
            answers = translate(list(sentences), **options)
            return [answer["translation_text"] for answer in answers], time.perf_counter() - start
    model, tokenizer = load_seq2seq(name, "translates").to(process_state().device), load_tokenizer(name)
    options |= {"precision": precision, "further_models": further_models, **languages(tokenizer)}
    start = time.perf_counter()
    return translate_on_all_processes(model, tokenizer, sentences, **options), time.perf_counter() - start
