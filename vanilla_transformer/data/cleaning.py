"""
Which pairs of a corpus are left out, and the report of it; and how much held-out text the training text contains.

Each rule is a pure function. A pair that several rules would drop counts for the first of them in `RULES`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any

import numpy as np

from .readers import CorpusSpec, SentencePair, blank_side, has_invalid_unicode, invalid_unicode, spell_out

# In the order in which they apply: what needs a pair's text alone, then all pairs, then their tokens.
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
    """What a recipe wants to be dropped. See `DataArguments` for the fields."""

    drop_empty: bool = False
    drop_invalid_unicode: bool = False
    drop_identical: bool = False
    drop_duplicates: bool = False
    max_length: int | None = None
    max_length_ratio: float | None = None

    @classmethod
    def from_arguments(cls, arguments: Any) -> "CleaningRules":
        """The rules among the fields of `DataArguments`."""
        return cls(**{item.name: getattr(arguments, item.name) for item in fields(cls)})

    @property
    def of_text(self) -> dict[str, bool]:
        """Those that need no tokens."""
        return {name: value for name, value in asdict(self).items() if name.startswith("drop_")}


@dataclass
class CleaningReport:
    """How many pairs were read and how many each rule dropped, with the first few of them."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)

    def add(self, rule: str, pairs: Sequence[SentencePair], count: int | None = None) -> None:
        """Counts `count` pairs (by default those given) that a rule dropped; `pairs` are the first of them."""
        self.dropped[rule] = self.dropped.get(rule, 0) + (len(pairs) if count is None else count)
        examples = self.examples.setdefault(rule, [])
        examples += [[_shown(side) for side in pair] for pair in pairs[: _EXAMPLES - len(examples)]]

    @property
    def kept(self) -> int:
        """Pairs that no rule dropped."""
        return self.read - sum(self.dropped.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"kept": self.kept}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CleaningReport":
        """The inverse of `to_dict`."""
        return cls(**{item.name: values[item.name] for item in fields(cls)})

    def __str__(self) -> str:
        lines = [f"{self.kept:,} of {self.read:,} pairs kept."]
        for rule in RULES:
            if self.dropped.get(rule):
                share = 100 * self.dropped[rule] / self.read
                lines.append(f"  {self.dropped[rule]:,} dropped ({share:.2g} %): {RULES[rule]}, such as")
                lines += [f"    {source} | {target}" for source, target in self.examples[rule]]
        return "\n".join(lines)


def nothing_left(report: CleaningReport) -> ValueError:
    """The error for cleaning that drops everything."""
    return ValueError(f"Cleaning must leave some pairs of the training text, got none. {report}")


def _shown(text: str) -> str:
    """Text for a report: short, on one line, and with what is not valid Unicode spelt out."""
    text = " ".join(text.split())
    text = text if len(text) <= _EXAMPLE_CHARACTERS else text[:_EXAMPLE_CHARACTERS] + " …"
    return spell_out(text)


def is_invalid_unicode(pair: SentencePair) -> bool:
    """A side cannot be written as UTF-8."""
    return has_invalid_unicode(pair.source) or has_invalid_unicode(pair.target)


def is_empty(pair: SentencePair) -> bool:
    """A side has no text."""
    return not (pair.source and pair.target)


def is_identical(pair: SentencePair) -> bool:
    """The translation is the source itself."""
    return pair.source == pair.target


def clean_text(
    spec: CorpusSpec, pairs: Iterable[tuple[int, SentencePair]], rules: CleaningRules, report: CleaningReport
) -> Iterator[SentencePair]:
    """
    The pairs of a corpus, given with their line numbers, that the rules on single pairs keep. Lines blank on both
    sides are never kept, nor are a dataset's rows without text on a side, which its reader cannot mend.

    Raises:
        ValueError: a pair has no text on one side or is not valid Unicode, and no rule drops it.
    """
    for number, pair in pairs:
        report.read += 1
        rule = _text_rule(pair, rules)
        if rule is None:
            yield pair
            continue
        if rule == "invalid_unicode" and not rules.drop_invalid_unicode:
            side = 0 if has_invalid_unicode(pair.source) else 1
            raise invalid_unicode(number, spec.place(side), pair[side])
        if rule == "empty" and any(pair) and not (rules.drop_empty or spec.dataset is not None):
            raise blank_side(number, spec.place(0 if not pair.source else 1))
        report.add(rule, [pair])


def _text_rule(pair: SentencePair, rules: CleaningRules) -> str | None:
    """The first rule on text alone that a pair breaks."""
    if is_invalid_unicode(pair):
        return "invalid_unicode"
    if is_empty(pair):
        return "empty"
    return "identical" if rules.drop_identical and is_identical(pair) else None


def pair_digest(pair: SentencePair) -> bytes:
    """16 bytes that stand for a pair. The length keeps ("ab", "c") and ("a", "bc") apart."""
    source = pair.source.encode()
    return blake2b(b"%d %s%s" % (len(source), source, pair.target.encode()), digest_size=16).digest()


def find_duplicates(digests: bytes | bytearray) -> np.ndarray:
    """
    Which pairs are the same as an earlier one: a mask of shape `(pairs,)`, True for every copy but the first.

    Args:
        digests: The 16 bytes of each pair, one after the other. Sorting them takes a quarter of a set's memory.
    """
    first, second = np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2).T
    order = np.lexsort((second, first))  # stable, so that the earliest of equals comes first
    repeated = (first[order][1:] == first[order][:-1]) & (second[order][1:] == second[order][:-1])
    duplicates = np.zeros(len(order), dtype=bool)
    duplicates[order[1:]] = repeated
    return duplicates


def is_too_long(source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: int) -> np.ndarray:
    """A mask of the pairs with more than `max_length` tokens on a side, EOS counted."""
    return np.maximum(source_lengths, target_lengths) > max_length


def is_unequal(source_lengths: np.ndarray, target_lengths: np.ndarray, max_ratio: float) -> np.ndarray:
    """A mask of the pairs with a side of more than `max_ratio` times the tokens of the other, EOS counted."""
    return np.maximum(source_lengths, target_lengths) > max_ratio * np.minimum(source_lengths, target_lengths)


def find_dropped_by_length(
    source_lengths: np.ndarray, target_lengths: np.ndarray, rules: CleaningRules
) -> dict[str, np.ndarray]:
    """For each rule on tokens a mask of shape `(pairs,)`: what it drops and no rule before it."""
    masks = {}
    if rules.max_length is not None:
        masks["max_length"] = is_too_long(source_lengths, target_lengths, rules.max_length)
    if rules.max_length_ratio is not None:
        unequal = is_unequal(source_lengths, target_lengths, rules.max_length_ratio)
        masks["max_length_ratio"] = unequal & ~masks.get("max_length", np.zeros_like(unequal))
    return masks


@dataclass
class Overlap:
    """
    How many of `pairs` held-out pairs have their source, their target, and both as one pair, in the training text;
    with the first few of those whose source it has.
    """

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
    """Counts which held-out pairs occur in training text that comes piece by piece."""

    def __init__(self, held_out_pairs: Sequence[SentencePair]):
        self.held_out_pairs = held_out_pairs
        self.sources = {pair.source for pair in held_out_pairs}
        self.targets = {pair.target for pair in held_out_pairs}
        self._pairs = set(held_out_pairs)
        self._seen_sources: set[str] = set()
        self._seen_targets: set[str] = set()
        self._seen_pairs: set[SentencePair] = set()

    def add(self, training_pairs: Iterable[SentencePair]) -> None:
        """Looks for the held-out text in more training text."""
        for pair in training_pairs:
            if pair.source in self.sources:
                self._seen_sources.add(pair.source)
            if pair.target in self.targets:
                self._seen_targets.add(pair.target)
            if pair in self._pairs:
                self._seen_pairs.add(pair)

    def overlap(self) -> Overlap:
        """What has been found until now."""
        known = [pair for pair in self.held_out_pairs if pair.source in self._seen_sources]
        return Overlap(
            pairs=len(self.held_out_pairs),
            sources=len(known),
            targets=sum(pair.target in self._seen_targets for pair in self.held_out_pairs),
            both=sum(pair in self._seen_pairs for pair in self.held_out_pairs),
            examples=[[_shown(side) for side in pair] for pair in known[:_EXAMPLES]],
        )
