"""The report of cleaning: dropped pairs with examples, and the lengths of all pairs."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from vanilla_transformer.data.cleaning_rules import RULES
from vanilla_transformer.data.readers import SentencePair, escape_invalid_unicode

from .histograms import Histograms, add_histograms

logger = logging.getLogger(__name__)

EXAMPLES = 3
_EXAMPLE_CHARACTERS = 100


@dataclass
class CleaningReport:
    """
    Numbers of pairs read and dropped by each rule, with the first few examples.

    `warnings` are the results of `find_language_mistakes`. `histograms` counts the lengths of the pairs with text on
    both sides, see `count_lengths`.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, rule: str, pairs: Sequence[SentencePair], count: int | None = None) -> None:
        """Count `count` pairs (by default `len(pairs)`) that a rule dropped; `pairs` holds the first of them."""
        self.dropped[rule] = self.dropped.get(rule, 0) + (len(pairs) if count is None else count)
        examples = self.examples.setdefault(rule, [])
        examples += [[abbreviate(side) for side in pair] for pair in pairs[: EXAMPLES - len(examples)]]

    def warn(self, warnings: Sequence[str]) -> None:
        """Log warnings, and keep them."""
        for warning in warnings:
            logger.warning(warning)
        self.warnings += warnings

    def add_histograms(self, counts: Histograms) -> None:
        """Add the results of `count_lengths` for more pairs."""
        self.histograms = add_histograms(self.histograms, counts)

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
        lines = [f"{self.kept:,} of {self.read:,} pairs kept.", *self.warnings]
        for rule in RULES:
            if self.dropped.get(rule):
                share = 100 * self.dropped[rule] / self.read
                lines.append(f"  {self.dropped[rule]:,} dropped ({share:.2g} %): {RULES[rule]}, such as")
                lines += [f"    {source} | {target}" for source, target in self.examples[rule]]
        return "\n".join(lines)


def nothing_left_error(report: CleaningReport) -> ValueError:
    """Return the error for rules that drop every pair."""
    return ValueError(f"Cleaning must leave some pairs of the training text, got none. {report}")


def abbreviate(text: str) -> str:
    """Shorten text to one line for a report, with escape sequences for invalid Unicode."""
    text = " ".join(text.split())
    text = text if len(text) <= _EXAMPLE_CHARACTERS else text[:_EXAMPLE_CHARACTERS] + " …"
    return escape_invalid_unicode(text)
