"""BLEU, chrF and the paper's BLEU as a metric of the library `evaluate`, whose own ones come over the network."""

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

# `evaluate` copies this file elsewhere before it imports it, so that there are no siblings to name with a dot.
from vanilla_transformer.evaluation.scores import score, score_as_the_paper

_DESCRIPTION = "Cased, detokenised BLEU and chrF2 by sacreBLEU, and the paper's BLEU of Moses' tokens."
_INPUTS = """
Args:
    predictions: Translations, a string each.
    references: A string each, or a list with one string, as `evaluate`'s own sacreBLEU takes them.
    paper_bleu: Language code, such as "de": also computes the paper's BLEU (compounds split) and the tokenised BLEU.

Returns:
    bleu, chrf, bleu_signature, chrf_signature, and with `paper_bleu` also paper_bleu, tokenized_bleu,
    paper_bleu_signature, tokenized_bleu_signature. Scores are from 0 to 100.
"""


class TranslationScores(evaluate.Metric):
    """
    To be loaded by its path:

        >>> metric = evaluate.load(metric_path())
        >>> metric.compute(predictions=["Ein Mann schläft."], references=["Ein Mann schläft."])["chrf"]
        100.0
    """

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": text, "references": text}),
                datasets.Features({"predictions": text, "references": datasets.Sequence(text)}),
            ],
        )

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[str | Sequence[str]],
        paper_bleu: str | None = None,
    ) -> dict[str, Any]:
        """
        Raises:
            ValueError: a prediction has not exactly one reference, or there are no rules for the language.
            OSError: `paper_bleu` is given, but sacremoses is not installed.
        """
        targets = [_only_reference(reference) for reference in references]
        scores = score(predictions, targets)._asdict()
        if paper_bleu is not None:
            scores |= score_as_the_paper(predictions, targets, paper_bleu)._asdict()
        return scores


def _only_reference(reference: str | Sequence[str]) -> str:
    if isinstance(reference, str):
        return reference
    if len(reference) != 1:
        raise ValueError(f"There must be one reference for each prediction, got {len(reference)}: {list(reference)}.")
    return reference[0]
