"""Translate the text of a test set by a model, or read its translations, and report how good they
are.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

from vanilla_transformer.data.readers import read_lines, read_text_files
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.options import TERMS, TranslationOptions, several_beams
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import Direction

from .named_metrics import Metric
from .pair_scores import measure_loss
from .scores import corpus_metrics
from .significance import Report, Scoring, build_report


class TestSet(NamedTuple):
    """The lines of a test set and of its translations, of which a model makes the missing ones.

    Without a source text, `sources` is empty. `baseline` has the translations of another system,
    and `further_references` other people's translations.
    """

    sources: list[str]
    references: list[str]
    hypotheses: list[str] | None = None
    baseline: list[str] | None = None
    further_references: Sequence[list[str]] = ()


class Evaluation(NamedTuple):
    """
    How good the translations of a test set are.

    Attributes:
        seconds: Time of translation, without the time to load the model; None if translations were
            read.
    """

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    report: Report
    baseline: list[str] | None = None
    seconds: float | None = None
    further_references: Sequence[list[str]] = ()


def read_test_set(
    source: str | None,
    target: str,
    hypotheses: str | None = None,
    baseline: str | None = None,
    further_targets: Sequence[str] = (),
) -> TestSet:
    """
    Read the files of a test set, which are aligned line by line.

    Args:
        source: File of the source text, which a model, metrics and glossaries need.
        target: File of the references.
        hypotheses: File of translations.
        baseline: File of the translations with which these are compared.
        further_targets: Files of further references.
    """
    # Reading the pairs checks them, but drops blank ones, which would shift the lines against the
    # other files. So the references are read again with blank lines, which count in no score or
    # metric.
    if source is not None:
        read_text_files(source, target)
    references = read_lines(target)

    def read_aligned(path: str) -> list[str]:
        lines = read_lines(path)
        if len(lines) != len(references):
            requirement = f"{path} must have one translation for each line of {target}"
            raise UserError(f"{requirement}, got {len(lines)} for {len(references)}.")
        return lines

    return TestSet(
        [] if source is None else read_lines(source),
        references,
        None if hypotheses is None else read_aligned(hypotheses),
        None if baseline is None else read_aligned(baseline),
        list(map(read_aligned, further_targets)),
    )


def evaluate_test_set(
    texts: TestSet,
    opening: AbstractContextManager[TranslationPipeline] | None = None,
    metrics: Mapping[str, Metric] = {},
    with_loss: bool = False,
    scoring: Scoring = corpus_metrics,
    samples: int = 1000,
    glossary: Any = None,
    best: int = 1,
) -> Evaluation:
    """
    Score the translations of a test set.

    Args:
        texts: Its lines. Without a baseline, a glossary is compared with the same model without it.
        opening: A context of the pipeline that translates with its own options, if `texts` have no
            hypotheses.
        metrics: Further metrics by name.
        with_loss: Also measure the loss of the model.
        glossary: Terms whose use in the hypotheses is measured; a pipeline has its own.
        best: Translations of each sentence that a metric needs; the others are of the first one.
    """
    sources, references, hypotheses, baseline, further = texts
    seconds, values, n_best = None, dict[str, float](), None
    with nullcontext() if opening is None else opening as translate:
        if translate is not None:
            options = translate.default_options
            glossary = TranslationOptions.resolve({}, options).glossary
            hypotheses, seconds = translate_timed(translate, sources, best)
            if best > 1:
                n_best = hypotheses
                hypotheses = [lines.partition("\n")[0] for lines in n_best]
            if glossary is not None and baseline is None:
                plain = translate.with_options(**dict.fromkeys(TERMS))
                baseline, _ = translate_timed(plain, sources)
        assert hypotheses is not None
        if metrics:
            scored_sources, scored_hypotheses, scored_references = [], [], []
            for row, reference in enumerate(references):
                if reference:
                    scored_references.append(reference)
                    scored_hypotheses.append(hypotheses[row])
                    if sources:
                        scored_sources.append(sources[row])
            for name, metric in metrics.items():
                values[name] = metric(scored_sources, scored_hypotheses, scored_references)
        if with_loss and translate is not None:
            pairs = (pair for pair in zip(sources, references, strict=True) if any(pair))
            direction = Direction(options.get("src_lang"), options.get("tgt_lang"))
            values["loss"] = measure_loss(
                translate.decoded_model, translate.tokenizer, pairs, direction
            )
    report = build_report(
        hypotheses, references, baseline, scoring, samples, values, further, n_best
    )
    if glossary is not None:
        term_uses = [glossary.measure_use(sources, hypotheses)]
        if baseline is not None:
            term_uses.append(glossary.measure_use(sources, baseline))
        report = replace(report, term_uses=term_uses)
    return Evaluation(sources, references, hypotheses, report, baseline, seconds, further)


def translate_timed(
    translate: TranslationPipeline, sources: list[str], best: int = 1
) -> tuple[list[str], float]:
    """Return the translations of sources, and the seconds that they took.

    Args:
        best: Translations of each source, best first, a line each; the search has as many beams.
    """
    start = time.perf_counter()
    options: dict[str, Any] = {}
    if best > 1:
        usual = TranslationOptions.resolve({}, translate.default_options).num_beams
        beams = several_beams(best, usual, translate.model.generation_config.num_beams)
        options = {"num_return_sequences": best, "num_beams": beams}
    translations = [_join_texts(answer) for answer in translate(sources, **options)]
    return translations, time.perf_counter() - start


def _join_texts(answer: Any) -> str:
    """Return the text of an answer, or of several, a line each."""
    answers = answer if isinstance(answer, list) else [answer]
    return "\n".join(hypothesis["translation_text"] for hypothesis in answers)
