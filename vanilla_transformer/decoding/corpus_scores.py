"""Score the pairs of a corpus, to drop the worst ones."""

from collections.abc import Sequence

import numpy as np
from accelerate import PartialState

from vanilla_transformer.text.languages import Direction

from .comet import Comet
from .forced_decoding import dual_scores


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
    sources, targets = zip(*pairs, strict=True)
    model = Comet.load(models[0], without_references=True).to(PartialState().device)
    return model.score(sources, targets, progress_bar=True)
