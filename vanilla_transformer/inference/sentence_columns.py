"""Options that each sentence of a request has for itself: its seed, its constraints and its target prefix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .engine.samples import SentenceSeeds
from .request_options import split_options
from .search.lexical_constraints import Phrases


@dataclass(frozen=True)
class SentenceColumns:
    """
    Options with a value for each sentence of a request, or None if a request has none.

    Args:
        seed: The seed of each sentence; before [`split_columns`], it may be a [`SentenceSeeds`], which derives them.
        constraints: Token ids of the phrases that translations must contain.
        target_prefix: Token ids with which translations must begin.
    """

    seed: Any = None
    constraints: Sequence[Phrases] | None = None
    target_prefix: Sequence[Sequence[int]] | None = None

    def select(self, numbers: Sequence[int]) -> "SentenceColumns":
        """Return the options of the sentences with these numbers, in their order."""
        given = {name: column for name, column in vars(self).items() if column is not None}
        return SentenceColumns(**{name: [column[number] for number in numbers] for name, column in given.items()})


def split_columns(options: Mapping[str, Any], sentences: Sequence[str]) -> tuple[SentenceColumns, dict[str, Any]]:
    """Return the options that each sentence of a request has for itself, and the other options."""
    columns, others = split_options(SentenceColumns, options)
    others.pop("force_words_ids", None)  # which are among the constraints
    if isinstance(columns.seed, SentenceSeeds):
        columns = replace(columns, seed=[columns.seed(sentence) for sentence in sentences])
    if not any(columns.constraints or ()):
        columns = replace(columns, constraints=None)
    return columns, others


__all__ = ["SentenceColumns", "split_columns"]
