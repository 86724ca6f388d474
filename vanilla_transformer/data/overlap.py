"""How much held-out text the training text contains."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cleaning import EXAMPLES, abbreviate
from .readers import SentencePair


@dataclass
class Overlap:
    """How many of `pairs` held-out pairs occur in the training text: by source, by target, and as a whole pair."""

    pairs: int
    sources: int
    targets: int
    both: int
    examples: list[list[str]]

    def __str__(self) -> str:
        text = (
            f"of {self.pairs:,} pairs the training text has {self.sources:,} sources, {self.targets:,} targets and "
            f"{self.both:,} whole pairs."
        )
        return "\n".join([text, *(f"    {source} | {target}" for source, target in self.examples)])


class OverlapCounter:
    """Count which held-out pairs occur in training text that arrives in pieces."""

    def __init__(self, held_out_pairs: Sequence[SentencePair]):
        self.held_out_pairs = held_out_pairs
        self.sources = {pair.source for pair in held_out_pairs}
        self.targets = {pair.target for pair in held_out_pairs}
        self._pairs = set(held_out_pairs)
        self._seen_sources: set[str] = set()
        self._seen_targets: set[str] = set()
        self._seen_pairs: set[SentencePair] = set()

    def add(self, training_pairs: Iterable[SentencePair]) -> None:
        """Search more training text for the held-out text."""
        for pair in training_pairs:
            if pair.source in self.sources:
                self._seen_sources.add(pair.source)
            if pair.target in self.targets:
                self._seen_targets.add(pair.target)
            if pair in self._pairs:
                self._seen_pairs.add(pair)

    def overlap(self) -> Overlap:
        """Return the overlap with all training text added so far."""
        known = [pair for pair in self.held_out_pairs if pair.source in self._seen_sources]
        return Overlap(
            pairs=len(self.held_out_pairs),
            sources=len(known),
            targets=sum(pair.target in self._seen_targets for pair in self.held_out_pairs),
            both=sum(pair in self._seen_pairs for pair in self.held_out_pairs),
            examples=[[abbreviate(side) for side in pair] for pair in known[:EXAMPLES]],
        )
