"""
Sentence scores of sacrebleu between all pairs of texts.

N-grams are counted once for each text, not once for each pair.

Letters in shapes: K texts, G n-grams of one length.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_word_ngrams

from vanilla_transformer.text.scripts import bleu_tokenizer


def pairwise_chrf(texts: Sequence[str]) -> np.ndarray:
    """Return the chrF of each text, with each one as reference, `(K, K)`."""
    ngrams = [extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in texts]
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    for counters in zip(*ngrams, strict=True):
        matches, totals = _matches(counters)
        counts = (totals[:, None] > 0) & (totals > 0)
        zeros = np.zeros_like(precision)
        precision += np.divide(matches, totals[:, None], out=zeros, where=counts)
        recall += np.divide(matches, totals, out=np.zeros_like(recall), where=counts)
        orders += counts
    precision /= orders.clip(min=1)
    recall /= orders.clip(min=1)
    factor = CHRF.BETA**2
    divisor = factor * precision + recall
    score = 100 * (1 + factor) * precision * recall
    return np.divide(score, divisor, out=np.zeros_like(score), where=divisor > 0)


def pairwise_bleu(texts: Sequence[str]) -> np.ndarray:
    """Return the BLEU of each text, with each one as reference and without orders that it lacks,
    `(K, K)`.
    """
    tokenize = BLEU(tokenize=bleu_tokenizer(texts)).tokenizer
    words = [tokenize(text.rstrip()).split() for text in texts]
    lengths = [len(text_words) for text_words in words]
    matches_by_order, totals_by_order = [], []
    for order in range(1, 5):
        ngrams = [extract_word_ngrams(text_words, order) for text_words in words]
        order_matches, order_totals = _matches(ngrams)
        matches_by_order.append(order_matches)
        totals_by_order.append(order_totals)
    matches = np.stack(matches_by_order, axis=-1).tolist()
    totals = np.stack(totals_by_order, axis=-1).tolist()

    def score(row: int, column: int) -> float:
        counts = matches[row][column], totals[row], lengths[row], lengths[column]
        return BLEU.compute_bleu(*counts, smooth_method="exp", effective_order=True).score

    scores = np.empty((len(texts), len(texts)))
    for row, column in np.ndindex(scores.shape):
        scores[row, column] = score(row, column)
    return scores


PAIRWISE = {"chrf": pairwise_chrf, "bleu": pairwise_bleu}


def _matches(counters: Sequence[Counter]) -> tuple[np.ndarray, np.ndarray]:
    """Return how many n-grams each pair of texts shares, `(K, K)`, and how many each one has,
    `(K,)`.
    """
    columns: dict[object, int] = {}
    for ngram in chain.from_iterable(counters):
        columns.setdefault(ngram, len(columns))
    counts = np.zeros((len(counters), len(columns)), dtype=np.int64)  # (K, G)
    for row, counter in enumerate(counters):
        counts[row, [columns[ngram] for ngram in counter]] = list(counter.values())
    matches = [np.minimum(row, counts).sum(axis=1) for row in counts]
    return np.stack(matches), counts.sum(axis=1)
