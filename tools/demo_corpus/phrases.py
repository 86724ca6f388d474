"""Draws noun phrases, pronouns and places that make sense where they are to stand."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .draw import Draw
from .lexicon import (
    BARE,
    DEFINITE,
    EVERY,
    FIXED_PLACES,
    HER,
    HIS,
    INDEFINITE,
    LANDMARKS,
    MANY,
    MY,
    NAMES,
    NEGATIVE,
    OUR,
    PLACE_NOUNS,
    PLACE_PREPOSITIONS,
    POSSESSIVES,
    SOME,
    STAYING_WITH,
    THEIR,
    THIS,
    TO,
    TWO_WAY,
    YOUR,
    adjectives_for,
)
from .nouns import nouns_of
from .structures import (
    Adjective,
    Adverbial,
    Argument,
    Both,
    Determiner,
    Gender,
    Name,
    Noun,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Slot,
    agreement,
    noun_of,
)

SPEAKER = Pronoun(1, False)
LISTENER = Pronoun(2, False)
HE = Pronoun(3, False, "masculine")
SHE = Pronoun(3, False, "feminine")
SPEAKERS = Pronoun(1, True)
THEY = Pronoun(3, True)
IT_EXPLETIVE = Pronoun(3, False, "neuter")
_PRONOUNS = (SPEAKER, LISTENER, HE, SHE, SPEAKERS, THEY)


class Shape(NamedTuple):
    """How a noun phrase begins: its determiner, whether it is plural, and whether it is counted."""

    determiner: Determiner | None
    plural: bool
    counted: bool = False


# A determiner of None is a possessive. Each role is a list of shapes with weights.
Role = tuple[tuple[Shape, float], ...]
_THE, _THE_PLURAL = Shape(DEFINITE, False), Shape(DEFINITE, True)
_A, _PLURAL = Shape(INDEFINITE, False), Shape(BARE, True)
_THIS, _THESE = Shape(THIS, False), Shape(THIS, True)
_OWN, _OWN_PLURAL = Shape(None, False), Shape(None, True)
_COUNTED = Shape(BARE, True, counted=True)
SUBJECT: Role = (
    (_THE, 48), (_THE_PLURAL, 16), (_A, 6), (_THIS, 7), (_THESE, 3), (Shape(EVERY, False), 4), (Shape(MANY, True), 3),
    (Shape(SOME, True), 2), (Shape(NEGATIVE, False), 3), (_COUNTED, 4), (_OWN, 5),
)  # fmt: skip
DEFINITE_ONLY: Role = ((_THE, 55), (_THE_PLURAL, 18), (_THIS, 9), (_THESE, 4), (_OWN, 12), (_OWN_PLURAL, 4))
OBJECT: Role = (
    (_THE, 36), (_THE_PLURAL, 10), (_A, 22), (_PLURAL, 7), (_THIS, 6), (_THESE, 3), (_OWN, 9), (_COUNTED, 6),
    (Shape(MANY, True), 3), (Shape(SOME, True), 3),
)  # fmt: skip
PERSON_OBJECT: Role = (
    (_THE, 44), (_THE_PLURAL, 14), (_A, 3), (_THIS, 8), (_THESE, 3), (_OWN, 14), (_COUNTED, 3), (Shape(SOME, True), 3),
)  # fmt: skip
DENIED_OBJECT: Role = ((_THE, 34), (_THE_PLURAL, 10), (_A, 24), (_PLURAL, 16), (_THIS, 6), (_OWN, 8))
NEW_OBJECT: Role = ((_A, 60), (_PLURAL, 15), (_COUNTED, 18), (Shape(MANY, True), 7))
NEW_DENIED: Role = ((_A, 60), (_PLURAL, 40))
GENERIC: Role = ((_PLURAL, 1),)
_MASS: dict[Role, Role] = {
    SUBJECT: ((_THE, 80), (_THIS, 20)),
    DEFINITE_ONLY: ((_THE, 70), (_THIS, 15), (_OWN, 15)),
}
_MASS_OTHERWISE: Role = ((_THE, 45), (Shape(BARE, False), 45), (_OWN, 10))
_MASS_NEW: Role = ((Shape(BARE, False), 1),)
_PLACE: Role = ((_THE, 80), (_THIS, 9), (_A, 3))
_OWN_PLACE: Role = ((_THE, 72), (_THIS, 6), (_OWN, 16), (_A, 3))
_KIN: Role = ((_OWN, 85), (_OWN_PLURAL, 15))
_ONLY_CHILDREN: Role = ((_OWN, 1),)


def phrase(draw: Draw, noun: Noun, role: Role, owner: Argument | None = None) -> NounPhrase:
    """Return a noun phrase in a role; its possessive may point back to the `owner`, the subject of its clause."""
    shape = draw.weighted(_shapes(noun, role))
    possessor = _possessor(draw, noun, shape)
    determiner = shape.determiner or _possessive(draw, owner)
    if possessor is not None:
        determiner = DEFINITE
    count = draw.whole(2, 8) if shape.counted else None
    return NounPhrase(noun, determiner, shape.plural, _adjectives(draw, noun), count, possessor)


def relatives(draw: Draw, noun: Noun, denied: bool) -> NounPhrase:
    """Return a brother, two brothers: family that somebody has."""
    if denied or "single" in noun.kinds:
        shape = draw.pick((_A, _PLURAL)) if "single" not in noun.kinds else _A
        return NounPhrase(noun, shape.determiner or INDEFINITE, shape.plural)
    if draw.chance(0.5):
        return NounPhrase(noun, INDEFINITE, adjectives=_adjectives(draw, noun))
    return NounPhrase(noun, BARE, True, count=draw.whole(2, 5))


def person(draw: Draw, role: Role = PERSON_OBJECT, subject: Argument | None = None) -> Argument:
    """Return a person as an object: a pronoun, a name or a noun phrase, other than the subject."""
    kind = draw.weighted((("pronoun", 24), ("name", 11), ("phrase", 65)))
    if kind == "pronoun":
        return draw.pick([pronoun for pronoun in _PRONOUNS if not _is_same(pronoun, subject)])
    if kind == "name":
        taken = (subject.first, subject.second) if isinstance(subject, Both) else (subject,)
        return draw.pick([name for name in NAMES if name not in taken])
    return noun_phrase(draw, ("person",), role, subject)


def noun_phrase(
    draw: Draw, kinds: tuple[str, ...], role: Role, subject: Argument | None = None, excluded: str = ""
) -> NounPhrase:
    """Return a noun phrase of one of the kinds, about something else than the subject."""
    other = noun_of(subject)
    nouns = [noun for noun in nouns_of(kinds, excluded) if noun is not other and not _is_too_young(other, noun)]
    return phrase(draw, draw.pick(nouns), role, subject)


def subject(draw: Draw, kinds: tuple[str, ...], role: Role = SUBJECT) -> Argument:
    """Return a subject of the kinds; people are also pronouns, names and pairs."""
    if "person" not in kinds or draw.chance(0.08 * (len(kinds) - 1)):
        others = tuple(kind for kind in kinds if kind != "person")
        return noun_phrase(draw, others, role, excluded="person")
    kind = draw.weighted((("pronoun", 28), ("name", 13), ("phrase", 56), ("pair", 3)))
    if kind == "pronoun":
        return draw.pick(_PRONOUNS)
    if kind == "name":
        return draw.pick(NAMES)
    first = noun_phrase(draw, ("person",), DEFINITE_ONLY if kind == "pair" else role)
    if kind == "phrase":
        return first
    second = noun_phrase(draw, ("person",), DEFINITE_ONLY, first)
    return Both(
        draw.pick(NAMES) if draw.chance(0.5) else replace(first, adjectives=()), replace(second, adjectives=())
    )


def pronoun_for(draw: Draw, argument: Argument) -> Pronoun | None:
    """Return the pronoun that takes an argument up again, or None where English and German would not agree on one."""
    if isinstance(argument, Pronoun):
        return argument
    if agreement(argument)[1]:
        return Pronoun(3, True, antecedent=noun_of(argument))
    if isinstance(argument, Name):
        return HE if argument.gender == "masculine" else SHE
    noun = noun_of(argument)
    if noun is None or not isinstance(argument, NounPhrase) or not argument.determiner.is_definite:
        return None
    if argument.determiner is EVERY or ("person" in noun.kinds and not noun.kinds & {"male", "female"}):
        return None
    gender: Gender = noun.gender if "person" not in noun.kinds else "masculine" if "male" in noun.kinds else "feminine"
    return Pronoun(3, False, gender, noun)


def place(draw: Draw, names: tuple[str, ...], owner: Argument | None = None, slot: Slot = "place") -> Adverbial:
    """Where something happens; `slot` is "complement" where the verb needs the place."""
    name = draw.pick(names)
    if name in FIXED_PLACES:
        adverb = FIXED_PLACES[name][0]
        return adverb if slot == "place" else type(adverb)(adverb.english, adverb.german, slot)
    return PrepositionalPhrase(PLACE_PREPOSITIONS[name][0], _place_phrase(draw, name, owner), slot)


def goal(draw: Draw, names: tuple[str, ...], owner: Argument | None = None) -> Adverbial:
    """Where somebody goes: a place, home, a town, or the doctor."""
    if draw.chance(0.15):
        host = phrase(draw, draw.pick(nouns_of(("host",))), ((_THE, 80), (_OWN, 20)), owner)
        return PrepositionalPhrase(TO, host, "complement")
    return way_to(draw, names, owner)


def way_to(draw: Draw, names: tuple[str, ...], owner: Argument | None = None) -> Adverbial:
    """Return the way to one of these places."""
    name = draw.pick(names)
    if name in FIXED_PLACES:
        return FIXED_PLACES[name][1]
    return PrepositionalPhrase(PLACE_PREPOSITIONS[name][1], _place_phrase(draw, name, owner), "complement")


def host(draw: Draw, owner: Argument | None) -> Adverbial:
    """With whom somebody lives or stays (bei)."""
    phrase_of_host = phrase(draw, draw.pick(nouns_of(("host",))), ((_THE, 80), (_OWN, 20)), owner)
    return PrepositionalPhrase(STAYING_WITH, phrase_of_host, "complement")


def landmark(draw: Draw, prepositions: tuple[str, ...], moving: bool) -> PrepositionalPhrase:
    """On the table, under the chair: in the accusative where something is put there, else in the dative."""
    name = draw.pick(prepositions)
    noun = draw.pick(nouns_of(LANDMARKS[name]))
    role: Role = ((_THE, 82), (_THIS, 8), (_A, 6))
    return PrepositionalPhrase(TWO_WAY[name][moving], phrase(draw, noun, role), "complement")


def _place_phrase(draw: Draw, name: str, owner: Argument | None) -> NounPhrase:
    noun = PLACE_NOUNS[name]
    return phrase(draw, noun, _OWN_PLACE if "homely" in noun.kinds else _PLACE, owner)


def _shapes(noun: Noun, role: Role) -> Role:
    if "single" in noun.kinds:
        return _ONLY_CHILDREN
    if "kin" in noun.kinds:
        return _KIN
    if "unowned" in noun.kinds:
        return tuple((shape, weight) for shape, weight in role if shape.determiner is not None)
    if "mass" not in noun.kinds:
        return role
    return _MASS_NEW if role in (GENERIC, NEW_OBJECT, NEW_DENIED) else _MASS.get(role, _MASS_OTHERWISE)


def _possessive(draw: Draw, owner: Argument | None) -> Determiner:
    """Mostly the subject's own; never "its", for which English and German divide the nouns differently."""
    own = _own_possessive(owner) if owner is not None else None
    if own is not None and draw.chance(0.7):
        return own
    return draw.pick(POSSESSIVES if owner is None else (MY, YOUR, OUR))


def _own_possessive(owner: Argument) -> Determiner | None:
    person_number = agreement(owner)
    if person_number != (3, False):
        return {(1, False): MY, (2, False): YOUR, (1, True): OUR, (3, True): THEIR}[person_number]
    if isinstance(owner, (Name, Pronoun)):
        return {"masculine": HIS, "feminine": HER}.get(owner.gender)
    noun = noun_of(owner)
    kinds = noun.kinds if noun else frozenset()
    return HIS if "male" in kinds else HER if "female" in kinds else None


def _possessor(draw: Draw, noun: Noun, shape: Shape) -> NounPhrase | Name | None:
    """Anna's car, the teacher's car, instead of the article or a possessive."""
    may_have = (shape.determiner in (None, DEFINITE)) and not noun.kinds.isdisjoint(("owned", "kin"))
    if not may_have or not draw.chance(0.11):
        return None
    if draw.chance(0.5):
        return draw.pick(NAMES)
    owner = draw.pick(nouns_of(("person",)))
    if owner is noun or _is_too_young(owner, noun):
        return None
    return NounPhrase(owner, draw.pick((MY, YOUR)) if "kin" in owner.kinds else DEFINITE)


def _is_too_young(owner: Noun | None, noun: Noun) -> bool:
    """Boys and girls have no sons and daughters."""
    return owner is not None and "young" in owner.kinds and "offspring" in noun.kinds


def _adjectives(draw: Draw, noun: Noun) -> tuple[Adjective, ...]:
    suitable = adjectives_for(noun)
    if not suitable or not draw.chance(0.18 if "person" in noun.kinds else 0.3):
        return ()
    first = draw.pick(suitable)
    if not draw.chance(0.08):
        return (first,)
    second = draw.pick(suitable)
    is_usual = first.rank < second.rank and not ("person" in noun.kinds and second.rank < 3)
    return (first, second) if is_usual else (first,)


def _is_same(pronoun: Pronoun, subject: Argument | None) -> bool:
    """Whether an object pronoun would be the subject again, or could be taken for it."""
    if subject is None:
        return False
    person_number = agreement(subject)
    if pronoun.person < 3:
        return pronoun.person == person_number[0]
    if person_number[0] < 3:
        return False
    return isinstance(subject, Pronoun) and subject.plural == pronoun.plural and subject.gender == pronoun.gender
