"""BLEU, chrF and the paper's BLEU as a metric of the `evaluate` library, whose own metrics need the
network.
"""

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

from vanilla_transformer.errors import UserError

# `evaluate` copies this file to another folder before importing it, so relative imports do not
# work.
from vanilla_transformer.evaluation.scores import score, score_paper_bleu

_DESCRIPTION = (
    "Cased, detokenized BLEU and chrF2 by sacreBLEU, and the paper's BLEU of Moses tokens."
)
_INPUTS = """
Args:
    predictions: Translations, one string each.
    references: One string each, or a list with one string, as in `evaluate`'s own sacreBLEU metric.
    paper_bleu: Language code, such as "de": also compute the paper's BLEU (compounds split)
        and the tokenized BLEU.

Returns:
    bleu, chrf, bleu_signature, chrf_signature, and with `paper_bleu` also paper_bleu,
    tokenized_bleu, paper_bleu_signature, tokenized_bleu_signature. Scores are from 0 to 100.
"""


class TranslationScores(evaluate.Metric):
    """Metric to load by its path.

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
        targets = [_only_reference(reference) for reference in references]
        scores = score(predictions, targets)._asdict()
        if paper_bleu is not None:
            scores |= score_paper_bleu(predictions, targets, paper_bleu)._asdict()
        return scores


def _only_reference(reference: str | Sequence[str]) -> str:
    if isinstance(reference, str):
        return reference
    if len(reference) != 1:
        raise UserError(
            f"There must be one reference for each prediction, got {len(reference)}: "
            f"{list(reference)}."
        )
    return reference[0]
