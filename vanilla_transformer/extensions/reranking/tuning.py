"""Fit the weights of reranking by a reverse model to validation text."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sacrebleu

from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import check_same_length
from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.text.scripts import bleu_tokenizer

from .reranking import Features, Reranker

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

_REVERSE_WEIGHTS = np.arange(0, 21) / 10  # 0, 0.1, …, 2
_LENGTH_WEIGHTS = np.arange(-10, 31) / 10  # -1, -0.9, …, 3


class TunedWeights(NamedTuple):
    """The weights of the reverse model and of length, the BLEU with them, and the BLEU of the order
    of beam search.
    """

    reverse: float
    length: float
    bleu: float
    beam_search_bleu: float


def tune_reranking(
    translate: "TranslationPipeline",
    reranker: Reranker,
    sources: Sequence[str],
    references: Sequence[str],
    num_beams: int,
    direction: Direction = NO_DIRECTION,
) -> TunedWeights:
    """
    Return the weights of a grid with the highest BLEU.

    Candidates are the ones that a reranker sees: text to keep is protected afterwards, and not
    here.

    Args:
        translate: The pipeline of the model.
        reranker: The model of the other direction.
        num_beams: The beam size, and the candidates of each sentence.
        direction: The languages of the model, if it has several.
    """
    if num_beams < 2:
        raise UserError(
            f"`num_beams` must be 2 or more, the candidates to choose from, got {num_beams}."
        )
    options: dict[str, Any] = {"num_beams": num_beams, "num_return_sequences": num_beams}
    languages = {"src_lang": direction.source, "tgt_lang": direction.target}
    options |= {"protect": False, **languages}
    answers = translate(list(sources), return_scores=True, return_tokens=True, **options)
    texts = []
    candidates = []
    for n_best in answers:
        texts.append([answer["translation_text"] for answer in n_best])
        candidates.append([_to_translation(answer) for answer in n_best])
    backward = Direction(direction.target, direction.source)
    features = reranker.features(sources, candidates, backward)
    return choose_weights(texts, features, references)


def _to_translation(answer: Mapping[str, Any]) -> Translation:
    return Translation(answer["translation_text"], 0.0, answer["log_probability"], answer["tokens"])


def choose_weights(
    texts: Sequence[Sequence[str]],
    features: Sequence[Sequence[Features]],
    references: Sequence[str],
) -> TunedWeights:
    """Return the best weights for n-best lists of equal sizes, in the order of beam search; of a
    tie, the smallest.
    """
    check_same_length([n_best[0] for n_best in texts], references)
    metric = sacrebleu.BLEU(effective_order=True, tokenize=bleu_tokenizer(references))
    rows = []
    for n_best, reference in zip(texts, references, strict=True):
        row = []
        for text in n_best:
            bleu = metric.sentence_score(text, [reference])
            row.append([*bleu.counts, *bleu.totals, bleu.sys_len, bleu.ref_len])
        rows.append(row)
    # Matches and n-grams of 4 orders, and both lengths: (sentences, candidates, 10)
    counts = np.array(rows)
    # (sentences, candidates) each
    forward, reverse, lengths = np.moveaxis(np.array(features, dtype=np.float64), 2, 0)
    sentences = np.arange(len(references))

    def bleu_of(chosen: np.ndarray | int) -> float:
        totals = counts[sentences, chosen].sum(axis=0)
        *total, length, reference_length = totals.tolist()
        return sacrebleu.BLEU.compute_bleu(
            total[:4], total[4:], length, reference_length, smooth_method="exp"
        ).score

    def bleu_with(weights: tuple[float, float]) -> float:
        scores = forward + weights[0] * reverse + weights[1] * lengths
        return bleu_of(scores.argmax(axis=1))

    grid = list(product(_REVERSE_WEIGHTS.tolist(), _LENGTH_WEIGHTS.tolist()))
    grid.sort(key=lambda weights: (weights[0], abs(weights[1])))
    best = max(grid, key=bleu_with)
    return TunedWeights(*best, bleu_with(best), bleu_of(0))
