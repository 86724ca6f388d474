"""The counts of each sentence that corpus BLEU is computed from, so that resampling need not count n-grams again."""

from collections.abc import Sequence

import numpy as np
import sacrebleu

from .scores import check_same_length

_ORDERS = 4


def count_ngrams(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return the counts of each sentence, `(sentences, 10)`: matches and n-grams of 4 orders, and both lengths.

    Raises:
        ValueError: there are no sentences, or the numbers of hypotheses and references differ.
    """
    check_same_length(hypotheses, references)
    metric = sacrebleu.BLEU(effective_order=True)
    scores = (metric.sentence_score(*pair) for pair in zip(hypotheses, ([each] for each in references), strict=True))
    return np.array([[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores])


def corpus_bleu(counts: np.ndarray) -> float:
    """Return sacreBLEU's corpus BLEU for the sum of such counts, `(10,)`."""
    total = [int(each) for each in counts]
    matches, ngrams, (length, reference_length) = total[:_ORDERS], total[_ORDERS : 2 * _ORDERS], total[2 * _ORDERS :]
    return sacrebleu.BLEU.compute_bleu(matches, ngrams, length, reference_length, smooth_method="exp").score


__all__ = ["corpus_bleu", "count_ngrams"]
