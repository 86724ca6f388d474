"""Compute BLEU and chrF with sacreBLEU, and the paper's BLEU, with signatures that make scores comparable."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sacrebleu
from sacrebleu.metrics.base import Metric
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .decoding import translate_on_all_processes
from .paper_bleu import MosesBLEU


class Scores(NamedTuple):
    """Corpus scores from 0 to 100 and their signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


class PaperScores(NamedTuple):
    """BLEU of Moses tokens from 0 to 100, with compounds split (as in the paper) and not split."""

    paper_bleu: float
    tokenized_bleu: float
    paper_bleu_signature: str
    tokenized_bleu_signature: str


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Compute cased corpus BLEU (13a tokens) and chrF2 of detokenized text.

    Raises:
        ValueError: there are no sentences, or the numbers of hypotheses and references differ.
    """
    return Scores(**_score_all(corpus_metrics(), hypotheses, references))


def score_paper_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str = "de") -> PaperScores:
    """Compute the paper's BLEU of detokenized text in `language` (see `MosesBLEU`). Not comparable with `score`.

    Raises:
        ValueError: there are no sentences, the numbers of hypotheses and references differ, or the language is not
            supported.
        OSError: sacremoses is not installed.
    """
    return PaperScores(**_score_all(_paper_metrics(language), hypotheses, references))


def translate_and_score(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    **generate_kwargs: Any,
) -> tuple[list[str], Scores]:
    """Translate the source of each (source, target) pair with the checkpoint's generation config, and score it.

    With several processes, all must call this function. Each translates its share, and all return the same result.
    """
    hypotheses = translate_on_all_processes(model, tokenizer, [source for source, _ in pairs], **generate_kwargs)
    return hypotheses, score(hypotheses, [target for _, target in pairs])


def corpus_metrics(paper_language: str | None = None) -> dict[str, Metric]:
    """Return sacreBLEU metrics by name: `bleu`, `chrf`, and with a language `paper_bleu` and `tokenized_bleu`.

    Raises:
        ValueError: the language is not supported.
        OSError: sacremoses is not installed.
    """
    metrics: dict[str, Metric] = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()}
    return metrics if paper_language is None else metrics | _paper_metrics(paper_language)


def check_same_length(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Check that there is one hypothesis for each reference.

    Raises:
        ValueError: there are no references, or the numbers differ.
    """
    if not references or len(hypotheses) != len(references):
        raise ValueError(
            f"There must be one hypothesis for each reference, got {len(hypotheses)} for {len(references)}."
        )


def _paper_metrics(language: str) -> dict[str, Metric]:
    return {"paper_bleu": MosesBLEU(language), "tokenized_bleu": MosesBLEU(language, compounds=False)}


def _score_all(metrics: dict[str, Metric], hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return each score as `name` and each signature as `name_signature`."""
    check_same_length(hypotheses, references)
    scores = {name: metric.corpus_score(hypotheses, [references]).score for name, metric in metrics.items()}
    return scores | {f"{name}_signature": str(metric.get_signature()) for name, metric in metrics.items()}
