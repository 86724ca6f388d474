"""Weights of reranking, against a literal search of the grid with sacreBLEU."""

import random

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
GRID = [(one / 10, other / 10) for one in range(21) for other in range(-10, 31)]


def random_lists(seed, size=3):
    """Return n-best lists of texts that lack some words, and features."""
    draw = random.Random(seed)
    texts = [
        [" ".join(word for word in text.split() if draw.random() < 0.8) for _ in range(size)]
        for text in REFERENCES
    ]
    texts[0][-1] = ""
    lists = [
        [Features(-draw.random() * 9, -draw.random() * 9, draw.randint(3, 9)) for _ in row]
        for row in texts
    ]
    return texts, lists


def literal_bleu(texts, lists, weights):
    best = [
        max(range(len(row)), key=lambda place, row=row: combine(row[place], weights))
        for row in lists
    ]
    chosen = [row[place] for row, place in zip(texts, best, strict=True)]
    return sacrebleu.BLEU().corpus_score(chosen, [REFERENCES]).score


@pytest.mark.parametrize("seed", sample(range(3), 0))
def test_choose_weights_finds_the_best_ones_of_the_grid(seed):
    texts, lists = random_lists(seed)
    found = choose_weights(texts, lists, REFERENCES)
    scores = {weights: literal_bleu(texts, lists, weights) for weights in GRID}
    assert found.bleu == pytest.approx(max(scores.values()))
    assert scores[found.reverse, found.length] == pytest.approx(found.bleu)
    first = [row[0] for row in texts]
    assert found.beam_search_bleu == pytest.approx(
        sacrebleu.BLEU().corpus_score(first, [REFERENCES]).score
    )


def test_choose_weights_prefers_small_weights_of_a_tie():
    same = [[text, text] for text in REFERENCES]
    lists = [[Features(-1.0, -2.0, 3), Features(-2.0, -1.0, 4)] for _ in REFERENCES]
    assert choose_weights(same, lists, REFERENCES)[:3] == pytest.approx((0.0, 0.0, 100.0))


def test_choose_weights_refuses_other_numbers_of_sentences():
    texts, lists = random_lists(0)
    with pytest.raises(ValueError, match="one hypothesis for each reference, got 3 for 2"):
        choose_weights(texts, lists, REFERENCES[:2])
