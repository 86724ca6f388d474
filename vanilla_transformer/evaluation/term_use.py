"""Count how many terms of a glossary are translated as it says."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.text.glossary import Glossary
from vanilla_transformer.text.units import count_forms


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
        wanted = Counter(match.target.casefold() for match in glossary.find(source))
        sentences += bool(wanted)
        terms += wanted.total()
        exact += sum(min(count, count_forms(target, translation, exactly=True)) for target, count in wanted.items())
        inflected += sum(min(count, count_forms(target, translation)) for target, count in wanted.items())
    return TermUse(sentences, terms, exact, inflected)


__all__ = ["TermUse", "measure_term_use"]
