"""Histograms of the lengths of pairs, kept and dropped, for the pictures of a report."""

import datasets
import numpy as np
import pyarrow.compute as pc

# {"source", "target" or "ratio": {"kept" or "dropped": counts}}
Histograms = dict[str, dict[str, list[int]]]

LENGTH_EDGES = np.arange(0, 510, 10)  # characters; longer texts count for the last bin
RATIO_EDGES = np.linspace(-3, 3, 49)  # log2 of the characters of the target divided by the ones of the source


def count_lengths(texts: datasets.Dataset, kept: np.ndarray) -> Histograms:
    """
    Count the lengths of both sides in characters, and the logarithm of their ratio to base 2.

    Args:
        texts: Columns `source` and `target`, without empty texts.
        kept: A mask of shape `(pairs,)` of the pairs that cleaning kept.
    """
    sources, targets = (pc.utf8_length(texts.data.column(side)).to_numpy() for side in ("source", "target"))
    ratios = np.log2(targets / sources)
    values = {"source": (sources, LENGTH_EDGES), "target": (targets, LENGTH_EDGES), "ratio": (ratios, RATIO_EDGES)}
    return {
        name: {
            label: np.histogram(np.clip(each[mask], edges[0], edges[-1]), edges)[0].tolist()
            for label, mask in (("kept", kept), ("dropped", ~kept))
        }
        for name, (each, edges) in values.items()
    }


def add_histograms(first: Histograms, second: Histograms) -> Histograms:
    """Return the sums of two histograms; the first one may be empty."""
    return {
        name: {
            label: (np.array(first[name][label]) + counts).tolist() if first else counts
            for label, counts in labels.items()
        }
        for name, labels in second.items()
    }


def move_to_dropped(before: Histograms, after: Histograms) -> Histograms:
    """Return the histograms after a further rule, given the counts of the pairs that were kept before it."""
    return {
        name: {"kept": labels["kept"], "dropped": (np.array(before[name]["dropped"]) + labels["dropped"]).tolist()}
        for name, labels in after.items()
    }
