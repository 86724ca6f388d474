"""Score the pairs of a corpus, to drop the worst ones. The models are imported when a corpus is scored."""

from collections.abc import Iterator, Sequence

import numpy as np
from accelerate import PartialState
from tqdm.auto import tqdm

from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

_WINDOW = 8192  # pairs that are sorted by length and scored at a time


def corpus_scores(models: Sequence[str], pairs: Sequence[tuple[str, str]], direction: Direction) -> np.ndarray:
    """
    Return the score of each pair: by [`dual_scores`] of two models, or the quality that one model predicts.

    Args:
        models: A model of the direction and one of the opposite direction, or a COMET model that needs no references;
            folders or names on the Hub.

    Raises:
        OSError: there is no such model.
        ValueError: a model does not fit.
    """
    if len(models) == 2:
        return dual_scores(models[0], models[1], pairs, direction)
    from .comet import Comet

    sources, targets = zip(*pairs, strict=True)
    model = Comet.load(models[0], without_references=True).to(PartialState().device)
    return model.score(sources, targets, progress_bar=True)


def dual_scores(forward: str, backward: str, pairs: Sequence[tuple[str, str]], direction: Direction) -> np.ndarray:
    """
    Return a score in (0, 1] for each pair, which is high if both models find it about equally probable.

    With the cross-entropies for each token `f` by the forward and `b` by the backward model, it is
    exp(-(|f - b| + (f + b) / 2)).

    Args:
        forward, backward: A model of the direction, and one of the opposite direction; folders or names on the Hub.

    Raises:
        OSError: there is no such model.
        ValueError: a model cannot translate in its direction, or a text is too long for it.
    """
    reverse = Direction(direction.target, direction.source)
    forth = cross_entropies(forward, pairs, direction)
    back = cross_entropies(backward, [(target, source) for source, target in pairs], reverse)
    return np.exp(-(np.abs(forth - back) + (forth + back) / 2))


def cross_entropies(name: str, pairs: Sequence[tuple[str, str]], direction: Direction) -> np.ndarray:
    """Return the negative log-probability of each translation, given its source, for each of its tokens, in nats."""
    from .forced_decoding import encode_as_trained, score_tokens
    from .pretrained import load_seq2seq, load_tokenizer

    model = load_seq2seq(name, "scores translations").to(PartialState().device)
    tokenizer = load_tokenizer(name)
    direction = NO_DIRECTION if find_languages(tokenizer) is None else direction
    results = list[float]()
    for window in tqdm(list(_windows(pairs)), f"Scoring by {name}", delay=1, disable=None):
        sources, targets = zip(*window, strict=True)
        ids, labels = encode_as_trained(model, tokenizer, sources, targets, direction)
        results += [-sum(row) / len(row) for row in score_tokens(model, ids, labels)]
    return np.array(results)


def _windows(pairs: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    return (pairs[start : start + _WINDOW] for start in range(0, len(pairs), _WINDOW))
