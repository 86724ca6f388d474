"""Rules on the text of single pairs that need to know the corpus: its languages and scripts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from vanilla_transformer.data.cleaning_rules import CleaningRules
from vanilla_transformer.data.readers import CorpusSpec, SentencePair
from vanilla_transformer.text.translation_warnings import (
    find_scripts,
    has_other_numbers,
    has_other_scripts,
    letter_ratio,
)

from .language_identification import is_clearly_another, language_code

_SAMPLE = 10_000  # pairs at the beginning of a corpus, whose scripts are the ones of the corpus
_USED_SHARE = 0.05  # of the letters of a side, from which on it uses a script

Rule = Callable[[SentencePair], bool]


@dataclass(frozen=True)
class PairRules:
    """
    The rules on single pairs that a recipe enables for a corpus.

    Args:
        direction: From which to which language the corpus translates.
        codes: The languages of both sides, if they are checked.
        scripts: The scripts of both sides, if they are checked.
    """

    rules: CleaningRules
    direction: str = ""
    codes: Sequence[str] = ()
    scripts: Sequence[Sequence[str]] = ()

    @classmethod
    def for_corpus(cls, spec: CorpusSpec, rules: CleaningRules, pairs: Iterable[SentencePair]) -> "PairRules":
        """
        Return the rules of a corpus with these pairs, of which the first are read if scripts are checked.

        Raises:
            ValueError: languages are checked, but not given or unknown.
            OSError: languages are checked, but py3langid is not installed.
        """
        codes = _require_codes(spec) if rules.drop_other_languages else ()
        scripts: Sequence[Sequence[str]] = ()
        if rules.drop_other_scripts:
            sample = list(islice(pairs, _SAMPLE))
            scripts = [find_scripts((pair[side] for pair in sample), _USED_SHARE) for side in (0, 1)]
        return cls(rules, str(spec.direction), codes, scripts)

    def enabled(self) -> dict[str, Rule]:
        """Return the enabled rules in the order of `RULES`."""
        found: dict[str, Rule] = {}
        if self.rules.min_letter_ratio is not None:
            found["min_letter_ratio"] = partial(has_few_letters, least=self.rules.min_letter_ratio)
        if self.rules.drop_other_numbers:
            found["other_numbers"] = has_unequal_numbers
        if self.scripts:
            found["other_scripts"] = partial(is_in_other_scripts, scripts=self.scripts)
        if self.codes:
            found["other_languages"] = partial(is_in_other_languages, codes=self.codes)
        return found


def _require_codes(spec: CorpusSpec) -> tuple[str, ...]:
    for language in spec.require_languages():
        if language_code(language) is None:
            rule = f"The languages of {spec.name} must have codes that py3langid knows, such as en"
            raise ValueError(f"{rule}, got {language}. Rename it, or leave `drop_other_languages` out.")
    return tuple(str(language_code(language)) for language in spec.direction)


def has_few_letters(pair: SentencePair, least: float) -> bool:
    """Return whether the share of letters is smaller than `least` on a side."""
    return min(letter_ratio(pair.source), letter_ratio(pair.target)) < least


def has_unequal_numbers(pair: SentencePair) -> bool:
    """Return whether a side has a number that the other one lacks, as in the warning of translations."""
    return has_other_numbers(pair.source, pair.target)


def is_in_other_scripts(pair: SentencePair, scripts: Sequence[Sequence[str]]) -> bool:
    """Return whether a side has letters of other scripts, as in the warning of translations."""
    return any(has_other_scripts(text, usual) for text, usual in zip(pair, scripts, strict=True))


def is_in_other_languages(pair: SentencePair, codes: Sequence[str]) -> bool:
    """Return whether a side is clearly in another language."""
    return any(is_clearly_another(text, code) for text, code in zip(pair, codes, strict=True))
