"""Count how many terms of a glossary are translated as it says."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.text.glossary import Glossary
from vanilla_transformer.text_units import split_units

_LONGEST_ENDING = 3  # letters by which a form is longer than the wanted one
_LONGEST_CHANGE = 1  # letters of the wanted form that another form lacks, unless it is short
_SHORT = 4  # letters


@dataclass(frozen=True)
class TermUse:
    """
    Terms of a source text, and their translations in a translation of it.

    Attributes:
        sentences: Number of sentences that have terms.
        terms: Number of terms in them.
        exact: Number of terms whose translation appears as it is in the glossary, in any case.
        inflected: Number of terms whose translation appears as it is or with other endings.
    """

    sentences: int
    terms: int
    exact: int
    inflected: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        shares = [f"{count / max(1, self.terms):.1%}" for count in (self.exact, self.inflected)]
        return f"{shares[0]} as given, {shares[1]} with any ending"


def measure_term_use(glossary: Glossary, sources: Sequence[str], translations: Sequence[str]) -> TermUse:
    """Count the terms in sources whose wanted translations are in the translations of these sources.

    A translation that is wanted twice must be there twice.
    """
    sentences = terms = exact = inflected = 0
    for source, translation in zip(sources, translations, strict=True):
        wanted = Counter(_words(match.target) for match in glossary.find(source))
        words = _words(translation)
        sentences += bool(wanted)
        terms += wanted.total()
        exact += sum(min(count, _count(target, words, False)) for target, count in wanted.items())
        inflected += sum(min(count, _count(target, words, True)) for target, count in wanted.items())
    return TermUse(sentences, terms, exact, inflected)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text[start:end].casefold() for start, end in split_units(text))


def _count(target: tuple[str, ...], words: tuple[str, ...], inflected: bool) -> int:
    windows = (words[first : first + len(target)] for first in range(len(words) - len(target) + 1))
    if inflected:
        return sum(all(map(is_form, window, target)) for window in windows)
    return sum(window == target for window in windows)


def is_form(word: str, wanted: str) -> bool:
    """Return whether a word differs from the wanted one by its ending only, as far as letters tell."""
    kept = len(wanted) - (_LONGEST_CHANGE if len(wanted) > _SHORT else 0)
    return word.startswith(wanted[:kept]) and len(word) <= len(wanted) + _LONGEST_ENDING


__all__ = ["TermUse", "is_form", "measure_term_use"]
