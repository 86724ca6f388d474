"""Rules without which a pair cannot be used at all, in the order of the lines, and the rule on identical sides."""

from collections.abc import Iterable, Iterator

from vanilla_transformer.data.cleaning_rules import CleaningRules
from vanilla_transformer.data.readers import (
    CorpusSpec,
    SentencePair,
    blank_side_error,
    has_invalid_unicode,
    invalid_unicode_error,
)

from .report import CleaningReport


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
