"""Which combinations of words a sentence holds, and which split each combination belongs to.

The rule. A combination is one of

* ("object", verb, noun): a noun is the object of a verb (accusative, dative or prepositional), also as the head of a
  relative clause or after "it" and "them";
* ("adjective", adjective, noun): an adjective describes a noun, before it or as its predicate, also in a comparison;
* ("number", number, ""): a number in words. Numbers up to twenty and round ones (30, 700, 4000) are no combinations:
  they are the words that the others are made of.

The SHA-256 digest of a combination, as a number modulo 100, assigns it for ever: below 84 to train, below 92 to
validation, the rest to test. A sentence belongs to train when all its combinations do; to test when at least one
is a test combination and the others are train combinations; to validation likewise; a sentence with both a
validation and a test combination is in no split. So every test sentence holds a combination that no training and
no validation sentence holds, for all seeds and counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

from .structures import (
    Argument,
    Both,
    Clause,
    Existence,
    Measure,
    NounPhrase,
    PrepositionalPhrase,
    Quality,
    Sentence,
    noun_of,
)

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_TRAIN_SHARE, _VALIDATION_SHARE = 84, 8


class Combination(NamedTuple):
    """Two words that meet in a sentence, by their German dictionary forms, or a number (`second` is then empty)."""

    kind: Literal["object", "adjective", "number"]
    first: str
    second: str


def combinations(sentence: Sentence) -> frozenset[Combination]:
    """All combinations in a sentence, wherever they stand."""
    found = set(_clause_combinations(sentence.clause))
    if sentence.second is not None:
        found.update(_clause_combinations(sentence.second))
    return frozenset(found)


@cache
def split_of_combination(combination: Combination) -> Split:
    """Return the split that a combination belongs to."""
    digest = hashlib.sha256("|".join(combination).encode()).digest()
    share = int.from_bytes(digest[:8], "big") % 100
    if share < _TRAIN_SHARE:
        return "train"
    return "validation" if share < _TRAIN_SHARE + _VALIDATION_SHARE else "test"


def split_of(found: frozenset[Combination]) -> Split | None:
    """Return the split of a sentence with these combinations; None if it would be in both validation and test."""
    held_out = {split_of_combination(combination) for combination in found} - {"train"}
    if not held_out:
        return "train"
    return held_out.pop() if len(held_out) == 1 else None


def _clause_combinations(clause: Clause | Existence) -> Iterator[Combination]:
    if isinstance(clause, Existence):
        yield from _argument_combinations(clause.theme)
        yield from _argument_combinations(clause.place.argument)
        return
    yield from _object_combinations(clause)
    yield from _predicate_combinations(clause)
    for argument in _arguments(clause):
        yield from _argument_combinations(argument)
    for dependent in (clause.lead, clause.tail):
        if dependent is not None:
            yield from _clause_combinations(dependent.clause)


def _arguments(clause: Clause) -> Iterator[Argument]:
    standard = clause.predicate.standard if isinstance(clause.predicate, Quality) else None
    for argument in (clause.subject, clause.object, clause.recipient, standard):
        if argument is not None:
            yield argument
    for adverbial in clause.adverbials:
        if isinstance(adverbial, PrepositionalPhrase):
            yield adverbial.argument


def _object_combinations(clause: Clause) -> Iterator[Combination]:
    """Return whether the verb selects the object; a unit of measurement (ten euros) does not count."""
    noun = noun_of(clause.object)
    if noun is not None and "unit" not in noun.kinds:
        yield Combination("object", clause.verb.infinitive, noun.german)


def _predicate_combinations(clause: Clause) -> Iterator[Combination]:
    if isinstance(clause.predicate, Measure):
        yield from _number_combination(clause.predicate.number)
    if isinstance(clause.predicate, Quality):
        for argument in (clause.subject, clause.predicate.standard):
            noun = noun_of(argument)
            if noun is not None:
                yield Combination("adjective", clause.predicate.adjective.german, noun.german)


def _argument_combinations(argument: Argument) -> Iterator[Combination]:
    if isinstance(argument, Both):
        yield from _argument_combinations(argument.first)
        yield from _argument_combinations(argument.second)
    if not isinstance(argument, NounPhrase):
        return
    for adjective in argument.adjectives:
        yield Combination("adjective", adjective.german, argument.noun.german)
    if argument.count:
        yield from _number_combination(argument.count)
    if isinstance(argument.possessor, NounPhrase):
        yield from _argument_combinations(argument.possessor)
    if argument.relative is not None:
        yield from _clause_combinations(argument.relative)


def _number_combination(number: int) -> Iterator[Combination]:
    is_simple = number <= 20 or number % 10 ** (len(str(number)) - 1) == 0
    if not is_simple:
        yield Combination("number", str(number), "")
