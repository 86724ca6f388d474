"""BLEU, chrF and the paper's BLEU as a metric of the `evaluate` library, whose own metrics need the
network.
"""

from collections.abc import Sequence
from itertools import zip_longest
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
    references: One string each, or a list of one or several, as in `evaluate`'s own sacreBLEU
        metric.
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
        rows = [[texts] if isinstance(texts, str) else [*texts] for texts in references]
        if not all(rows):
            raise UserError("Each prediction must have a reference, but one has none.")
        # A blank reference does not count, so a prediction may have fewer than another.
        targets, *further = map(list, zip_longest(*rows, fillvalue=""))
        scores = score(predictions, targets, *further)._asdict()
        if paper_bleu is not None:
            scores |= score_paper_bleu(predictions, targets, paper_bleu, further)._asdict()
        return scores
