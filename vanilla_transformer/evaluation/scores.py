"""BLEU and chrF by sacreBLEU, and the paper's BLEU, with the signatures that make them comparable."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sacrebleu
from sacrebleu.metrics.base import Metric
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .decoding import translate_on_all_processes
from .paper_bleu import MosesBLEU


class Scores(NamedTuple):
    """Corpus scores from 0 to 100, and how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


class PaperScores(NamedTuple):
    """BLEU of Moses' tokens from 0 to 100, with compounds split as in the paper and without."""

    paper_bleu: float
    tokenized_bleu: float
    paper_bleu_signature: str
    tokenized_bleu_signature: str


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """
    Cased corpus BLEU (13a tokens) and chrF2 of detokenised text.

    Raises:
        ValueError: there is nothing to score, or not one reference for each hypothesis.
    """
    return Scores(**_score_all(corpus_metrics(), hypotheses, references))


def score_as_the_paper(hypotheses: Sequence[str], references: Sequence[str], language: str = "de") -> PaperScores:
    """
    The paper's BLEU of detokenised text in `language` (see `MosesBLEU`). It is not comparable with `score`.

    Raises:
        ValueError: there is nothing to score, not one reference for each hypothesis, or no rules for the language.
        OSError: sacremoses is not installed.
    """
    return PaperScores(**_score_all(_paper_metrics(language), hypotheses, references))


def translate_and_score(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    **generate_kwargs: Any,
) -> tuple[list[str], Scores]:
    """
    Translations of the first text of each pair, by the checkpoint's own decoding, and scores against the second.

    With several processes all must call this: each decodes its share, and all return the same.
    """
    hypotheses = translate_on_all_processes(model, tokenizer, [source for source, _ in pairs], **generate_kwargs)
    return hypotheses, score(hypotheses, [target for _, target in pairs])


def corpus_metrics(paper_language: str | None = None) -> dict[str, Metric]:
    """
    The metrics of sacreBLEU's kind by name: `bleu`, `chrf`, and with a language `paper_bleu` and `tokenized_bleu`.

    Raises:
        ValueError: there are no rules for the language.
        OSError: sacremoses is not installed.
    """
    metrics: dict[str, Metric] = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()}
    return metrics if paper_language is None else metrics | _paper_metrics(paper_language)


def check_paired(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """
    Raises:
        ValueError: there is nothing to score, or not one reference for each hypothesis.
    """
    if not references or len(hypotheses) != len(references):
        raise ValueError(
            f"There must be one hypothesis for each reference, got {len(hypotheses)} for {len(references)}."
        )


def _paper_metrics(language: str) -> dict[str, Metric]:
    return {"paper_bleu": MosesBLEU(language), "tokenized_bleu": MosesBLEU(language, compounds=False)}


def _score_all(metrics: dict[str, Metric], hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Each metric's score by its name, and its signature by its name and `_signature`."""
    check_paired(hypotheses, references)
    scores = {name: metric.corpus_score(hypotheses, [references]).score for name, metric in metrics.items()}
    return scores | {f"{name}_signature": str(metric.get_signature()) for name, metric in metrics.items()}
