"""Rules on the lengths of pairs in tokens."""

from collections.abc import Sequence

import numpy as np

from vanilla_transformer.data.cleaning_rules import CleaningRules


def is_too_long(source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: float | np.ndarray) -> np.ndarray:
    """Return a mask of the pairs with more than `max_length` tokens on a side, including EOS."""
    return np.maximum(source_lengths, target_lengths) > max_length


def is_unbalanced(source_lengths: np.ndarray, target_lengths: np.ndarray, max_ratio: float | np.ndarray) -> np.ndarray:
    """Return a mask of the pairs with one side more than `max_ratio` times as long as the other, in tokens."""
    return np.maximum(source_lengths, target_lengths) > max_ratio * np.minimum(source_lengths, target_lengths)


def find_dropped_by_length(
    source_lengths: np.ndarray, target_lengths: np.ndarray, rules: Sequence[CleaningRules], corpora: np.ndarray
) -> dict[str, np.ndarray]:
    """
    Return for each rule on tokens a mask of shape `(pairs,)` of the pairs that it is the first to drop.

    Args:
        rules: The rules of each corpus.
        corpora: The number of each pair's corpus, shape `(pairs,)`.
    """
    masks: dict[str, np.ndarray] = {}
    for name, is_broken in (("max_length", is_too_long), ("max_length_ratio", is_unbalanced)):
        limits = [getattr(each, name) for each in rules]
        if any(limit is not None for limit in limits):
            of_pairs = np.array([np.inf if limit is None else limit for limit in limits])[corpora]
            broken = is_broken(source_lengths, target_lengths, of_pairs)
            masks[name] = broken & ~masks["max_length"] if masks else broken
    return masks
