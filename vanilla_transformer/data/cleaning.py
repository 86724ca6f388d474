"""Rules that drop pairs of a corpus, the report of what they dropped, and the overlap with held-out text.

Each rule is a pure function. A pair that breaks several rules counts for the first of them in `RULES`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any

import numpy as np

from .readers import (
    CorpusSpec,
    SentencePair,
    blank_side_error,
    escape_invalid_unicode,
    has_invalid_unicode,
    invalid_unicode_error,
)

# In the order in which they apply: rules on the text of one pair, on all pairs, and on tokens.
RULES = {
    "invalid_unicode": "not valid Unicode",
    "empty": "without text on a side",
    "identical": "source and target identical",
    "duplicates": "the same as an earlier pair",
    "max_length": "longer than max_length",
    "max_length_ratio": "beyond max_length_ratio",
}
_EXAMPLES = 3
_EXAMPLE_CHARACTERS = 100


@dataclass(frozen=True)
class CleaningRules:
    """The rules that a recipe enables. See `DataArguments` for the fields."""

    drop_empty: bool = False
    drop_invalid_unicode: bool = False
    drop_identical: bool = False
    drop_duplicates: bool = False
    max_length: int | None = None
    max_length_ratio: float | None = None

    @classmethod
    def from_arguments(cls, arguments: Any) -> "CleaningRules":
        """Take the rules from the fields of `DataArguments`."""
        return cls(**{item.name: getattr(arguments, item.name) for item in fields(cls)})

    @property
    def on_text(self) -> dict[str, bool]:
        """Return the rules that need no tokens."""
        return {name: value for name, value in asdict(self).items() if name.startswith("drop_")}


@dataclass
class CleaningReport:
    """Numbers of pairs read and dropped by each rule, with the first few examples."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)

    def add(self, rule: str, pairs: Sequence[SentencePair], count: int | None = None) -> None:
        """Count `count` pairs (by default `len(pairs)`) that a rule dropped; `pairs` holds the first of them."""
        self.dropped[rule] = self.dropped.get(rule, 0) + (len(pairs) if count is None else count)
        examples = self.examples.setdefault(rule, [])
        examples += [[_abbreviate(side) for side in pair] for pair in pairs[: _EXAMPLES - len(examples)]]

    @property
    def kept(self) -> int:
        """Return the number of pairs that no rule dropped."""
        return self.read - sum(self.dropped.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self) | {"kept": self.kept}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CleaningReport":
        """Build a report from the result of `to_dict`."""
        return cls(**{item.name: values[item.name] for item in fields(cls)})

    def __str__(self) -> str:
        lines = [f"{self.kept:,} of {self.read:,} pairs kept."]
        for rule in RULES:
            if self.dropped.get(rule):
                share = 100 * self.dropped[rule] / self.read
                lines.append(f"  {self.dropped[rule]:,} dropped ({share:.2g} %): {RULES[rule]}, such as")
                lines += [f"    {source} | {target}" for source, target in self.examples[rule]]
        return "\n".join(lines)


def nothing_left_error(report: CleaningReport) -> ValueError:
    """Return the error for rules that drop every pair."""
    return ValueError(f"Cleaning must leave some pairs of the training text, got none. {report}")


def _abbreviate(text: str) -> str:
    """Shorten text to one line for a report, with escape sequences for invalid Unicode."""
    text = " ".join(text.split())
    text = text if len(text) <= _EXAMPLE_CHARACTERS else text[:_EXAMPLE_CHARACTERS] + " …"
    return escape_invalid_unicode(text)


def is_invalid_unicode(pair: SentencePair) -> bool:
    """Return whether UTF-8 cannot encode a side."""
    return has_invalid_unicode(pair.source) or has_invalid_unicode(pair.target)


def is_empty(pair: SentencePair) -> bool:
    """Return whether a side has no text."""
    return not (pair.source and pair.target)


def is_identical(pair: SentencePair) -> bool:
    """Return whether the translation equals the source."""
    return pair.source == pair.target


def clean_text(
    spec: CorpusSpec, pairs: Iterable[tuple[int, SentencePair]], rules: CleaningRules, report: CleaningReport
) -> Iterator[SentencePair]:
    """
    Yield the pairs that the rules on single pairs keep, from pairs with their line numbers.

    Lines blank on both sides are always dropped. So are pairs without text on a side where they are no lines that a
    user can edit, as in a dataset or an archive.

    Raises:
        ValueError: a pair has no text on one side or is not valid Unicode, and no rule drops it.
    """
    for number, pair in pairs:
        report.read += 1
        rule = _broken_rule(pair, rules)
        if rule is None:
            yield pair
            continue
        if rule == "invalid_unicode" and not rules.drop_invalid_unicode:
            side = 0 if has_invalid_unicode(pair.source) else 1
            raise invalid_unicode_error(number, spec.location(side), pair[side])
        if rule == "empty" and any(pair) and spec.is_editable and not rules.drop_empty:
            raise blank_side_error(number, spec.location(0 if not pair.source else 1))
        report.add(rule, [pair])


def _broken_rule(pair: SentencePair, rules: CleaningRules) -> str | None:
    """Return the first rule on text that a pair breaks."""
    if is_invalid_unicode(pair):
        return "invalid_unicode"
    if is_empty(pair):
        return "empty"
    return "identical" if rules.drop_identical and is_identical(pair) else None


def hash_pair(pair: SentencePair) -> bytes:
    """Return a 16-byte hash of a pair. The length of the source tells ("ab", "c") from ("a", "bc")."""
    source = pair.source.encode()
    return blake2b(b"%d %s%s" % (len(source), source, pair.target.encode()), digest_size=16).digest()


def find_duplicates(hashes: bytes | bytearray) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is True for each pair equal to an earlier one.

    Args:
        hashes: The concatenated 16-byte hashes of all pairs. Sorting them takes a quarter of a set's memory.
    """
    first, second = np.frombuffer(hashes, dtype=np.uint64).reshape(-1, 2).T
    order = np.lexsort((second, first))  # stable: the earliest of equal pairs comes first
    repeated = (first[order][1:] == first[order][:-1]) & (second[order][1:] == second[order][:-1])
    duplicates = np.zeros(len(order), dtype=bool)
    duplicates[order[1:]] = repeated
    return duplicates


def is_too_long(source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Return a mask of the pairs with more than `max_length` tokens on a side, including EOS."""
    return np.maximum(source_lengths, target_lengths) > max_length


def is_unbalanced(source_lengths: np.ndarray, target_lengths: np.ndarray, max_ratio: float) -> np.ndarray:
    """Return a mask of the pairs with one side more than `max_ratio` times as long as the other, in tokens."""
    return np.maximum(source_lengths, target_lengths) > max_ratio * np.minimum(source_lengths, target_lengths)


def find_dropped_by_length(
    source_lengths: np.ndarray, target_lengths: np.ndarray, rules: CleaningRules
) -> dict[str, np.ndarray]:
    """Return for each rule on tokens a mask of shape `(pairs,)` of the pairs that it is the first to drop."""
    masks = {}
    if rules.max_length is not None:
        masks["max_length"] = is_too_long(source_lengths, target_lengths, rules.max_length)
    if rules.max_length_ratio is not None:
        unbalanced = is_unbalanced(source_lengths, target_lengths, rules.max_length_ratio)
        masks["max_length_ratio"] = unbalanced & ~masks.get("max_length", np.zeros_like(unbalanced))
    return masks


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
            examples=[[_abbreviate(side) for side in pair] for pair in known[:_EXAMPLES]],
        )
