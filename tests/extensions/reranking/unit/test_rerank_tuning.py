"""Weights of reranking, against a literal search of the grid with sacreBLEU."""

import random
from itertools import product

import pytest
import sacrebleu

from tests.sweeps import sample
from vanilla_transformer.extensions.reranking.reranking import Features, combine
from vanilla_transformer.extensions.reranking.tuning import choose_weights

REFERENCES = [
    "Der Mann liest ein Buch.",
    "Die Frau sieht einen alten Hund.",
    "Ein Kind läuft über die Straße.",
]
GRID = [(one / 10, other / 10) for one, other in product(range(21), range(-10, 31))]


def random_lists(seed, size=3):
    """Return n-best lists of texts that lack some words, and features."""
    draw = random.Random(seed)
    texts, lists = [], []
    for reference in REFERENCES:
        row, features = [], []
        for _ in range(size):
            words = [word for word in reference.split() if draw.random() < 0.8]
            row.append(" ".join(words))
            scores = (-draw.random() * 9, -draw.random() * 9, draw.randint(3, 9))
            features.append(Features(*scores))
        texts.append(row)
        lists.append(features)
    texts[0][-1] = ""
    return texts, lists


def literal_bleu(texts, lists, weights):
    chosen = []
    for row, features in zip(texts, lists, strict=True):
        scores = [combine(candidate, weights) for candidate in features]
        chosen.append(row[scores.index(max(scores))])
    return sacrebleu.BLEU().corpus_score(chosen, [REFERENCES]).score


@pytest.mark.parametrize("seed", sample(range(3), 0))
def test_choose_weights_finds_the_best_ones_of_the_grid(seed):
    texts, lists = random_lists(seed)
    weights = choose_weights(texts, lists, REFERENCES)
    scores = {pair: literal_bleu(texts, lists, pair) for pair in GRID}
    assert weights.bleu == pytest.approx(max(scores.values()))
    chosen = (weights.reverse, weights.length)
    assert scores[chosen] == pytest.approx(weights.bleu)
    first = [row[0] for row in texts]
    bleu = sacrebleu.BLEU().corpus_score(first, [REFERENCES]).score
    assert weights.beam_search_bleu == pytest.approx(bleu)


def test_choose_weights_prefers_small_weights_of_a_tie():
    same = [[text, text] for text in REFERENCES]
    row = [Features(-1.0, -2.0, 3), Features(-2.0, -1.0, 4)]
    weights = choose_weights(same, [row] * len(REFERENCES), REFERENCES)
    assert weights[:3] == pytest.approx((0.0, 0.0, 100.0))


def test_choose_weights_refuses_other_numbers_of_sentences():
    texts, lists = random_lists(0)
    message = "one hypothesis for each reference, got 3 for 2"
    with pytest.raises(ValueError, match=message):
        choose_weights(texts, lists, REFERENCES[:2])
