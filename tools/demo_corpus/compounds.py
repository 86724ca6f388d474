"""Sentences with a relative or an infinitive clause, and main clauses joined by and or but."""

from __future__ import annotations

from dataclasses import replace

from .clauses import NOW_OR_THEN, Situation, Wish, action, object_verbs_for, subject_verbs_for
from .draw import Draw
from .lexicon import AND, BUT, CAN, DEFINITE, PAST_TIMES, WANT_TO, adjective
from .nouns import nouns_of
from .phrases import DEFINITE_ONLY, LISTENER, NEW_OBJECT, noun_phrase, person, phrase, pronoun_for, subject, way_to
from .statements import FAULTS, MERITS, TROUBLES, fitting_adjective
from .structures import (
    Argument,
    Clause,
    Front,
    Infinitive,
    NounPhrase,
    Quality,
    RelativePronoun,
    Sentence,
    Tense,
    Verb,
)
from .verbs import (
    BE,
    BUY,
    CALL,
    DOINGS,
    DRINK,
    EAT,
    FIND,
    FORGET_TO,
    GO,
    KNOW,
    PICK_UP,
    PLAY,
    PROMISE,
    READ,
    SEARCH,
    SEE,
    SING,
    SLEEP,
    TRY,
    VISIT,
)

# Where one goes, and what for.
_ERRANDS: tuple[tuple[tuple[str, ...], tuple[Verb, ...]], ...] = (
    (("market",), (BUY,)),
    (("station",), (PICK_UP,)),
    (("park", "garden", "forest"), (PLAY, SING, READ)),
    (("kitchen",), (EAT, DRINK)),
    (("home",), (SLEEP, READ, CALL)),
    (("village", "town"), (VISIT,)),
)
_ERRAND_TIMES: tuple[tuple[Situation, float], ...] = (
    (NOW_OR_THEN, 30),
    (Situation("past"), 40),
    (Situation("future"), 15),
    (Situation(modal=WANT_TO), 15),
)


def relative_subject(draw: Draw) -> Sentence:
    """Build a sentence like "The woman who is waiting for the train is tired"."""
    described = _described(draw, ("goods", "text", "place"))
    quality = fitting_adjective(draw, described)
    if "person" in described.noun.kinds and draw.chance(0.3):
        main = action(draw, Wish(DOINGS, described, light=True, negated=False))
    elif quality is None:
        main = Clause(described, BE, predicate=Quality(adjective("good")))
    else:
        main = Clause(described, BE, predicate=Quality(quality), negated=draw.chance(0.15))
    return Sentence("relative clause", replace(main, front="subject", subject=_with_relative(draw, described)))


def relative_object(draw: Draw) -> Sentence:
    """I know the man who is washing the car."""
    described = _described(draw, ("goods", "text"))
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    theme = _with_relative(draw, described)
    used = theme.relative.verb if theme.relative else None
    possible = [verb for verb in object_verbs_for(described.noun.kinds) if verb is not used]
    verbs = [verb for verb in possible if not verb.prefix and not verb.momentary and "present" in verb.tenses]
    verb = draw.pick((KNOW, SEE)) if "person" in described.noun.kinds and draw.chance(0.5) else draw.pick(verbs)
    main = action(draw, Wish((verb,), doer, theme, NOW_OR_THEN, False, light=True, asked=True))
    return Sentence("relative clause", replace(main, front="subject"))


def _described(draw: Draw, things: tuple[str, ...]) -> NounPhrase:
    kinds = draw.weighted(((("person",), 55), (things, 38), (("animal",), 7)))
    noun = draw.pick(nouns_of(kinds, "kin"))
    plural = "mass" not in noun.kinds and draw.chance(0.22)
    return replace(phrase(draw, noun, DEFINITE_ONLY), determiner=DEFINITE, plural=plural, possessor=None)


def _with_relative(draw: Draw, described: NounPhrase) -> NounPhrase:
    gap = RelativePronoun(described.noun, described.plural)
    kinds = described.noun.kinds
    doers = subject_verbs_for(kinds)
    if doers and draw.chance(0.55 if "person" in kinds else 0.2):
        return replace(described, relative=action(draw, Wish(doers, gap, light=True)))
    verbs = object_verbs_for(kinds)
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    if isinstance(doer, NounPhrase) and doer.noun is described.noun:
        doer = LISTENER
    clause = action(draw, Wish(verbs, doer, gap, light=True))
    return replace(described, relative=replace(clause, front="object"))


def attempt(draw: Draw) -> Sentence:
    """To try, promise or forget to do something (zu)."""
    verb = draw.pick((TRY, TRY, PROMISE, FORGET_TO))
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    tense: Tense = "past" if verb is FORGET_TO or draw.chance(0.5) else "present"
    wish = Wish(DOINGS, doer, situation=Situation(modal=WANT_TO), negated=False, asked=True)
    inner = replace(action(draw, wish), modal=None)
    matrix = Clause(doer, verb, tense, progressive=tense == "present", tail=Infinitive(inner))
    if tense == "past" and draw.chance(0.35):
        matrix = replace(matrix, adverbials=(draw.pick(PAST_TIMES[:3]),), front="time")
    return Sentence("infinitive", matrix)


def purpose(draw: Draw) -> Sentence:
    """To go somewhere in order to do something (um … zu)."""
    names, verbs = draw.pick(_ERRANDS)
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    verb = draw.pick(verbs)
    theme = _errand_object(draw, verb, doer)
    wish = Wish((verb,), doer, theme, Situation(modal=WANT_TO), negated=False, asked=True)
    inner = replace(action(draw, wish), modal=None)
    situation = draw.weighted(_ERRAND_TIMES)
    main = action(draw, Wish((GO,), doer, situation=situation, negated=False, light=True))
    others = tuple(adverbial for adverbial in main.adverbials if adverbial.slot == "time")
    front: Front = "time" if others else "subject"
    main = replace(main, adverbials=(*others, way_to(draw, names, doer)), front=front)
    return Sentence("infinitive", replace(main, tail=Infinitive(inner, purpose=True)))


def _errand_object(draw: Draw, verb: Verb, doer: Argument) -> Argument | None:
    """One goes to the market for food, and to a village to see people; else whatever the verb takes."""
    if verb is BUY:
        return noun_phrase(draw, ("food",), NEW_OBJECT)
    return person(draw, DEFINITE_ONLY, doer) if verb is VISIT else None


def joined(draw: Draw) -> Sentence:
    """Two main clauses; the second takes up something of the first with a pronoun."""
    builders = ((_two_qualities, 35), (_quality_and_action, 35), (_search, 15), (_state_and_action, 15))
    return draw.weighted(builders)(draw)


def _two_qualities(draw: Draw) -> Sentence:
    """Build a sentence like "The car is old, but it is beautiful"."""
    described = replace(noun_phrase(draw, ("goods", "text", "place", "animal"), DEFINITE_ONLY), adjectives=())
    first = fitting_adjective(draw, described, MERITS + FAULTS)
    pronoun = pronoun_for(draw, described)
    contrast = FAULTS if first in MERITS else MERITS
    second = fitting_adjective(draw, replace(described, adjectives=(first,)), contrast) if first else None
    if first is None or second is None or pronoun is None:
        return _search(draw)
    opening = Clause(described, BE, predicate=Quality(first))
    return Sentence("pronoun", opening, BUT, Clause(pronoun, BE, predicate=Quality(second)))


def _quality_and_action(draw: Draw) -> Sentence:
    """Build a sentence like "The apple is fresh, and the boy is eating it"."""
    described = noun_phrase(draw, ("goods", "text", "animal"), DEFINITE_ONLY)
    quality, pronoun = fitting_adjective(draw, described), pronoun_for(draw, described)
    if quality is None or pronoun is None:
        return _search(draw)
    opening = Clause(described, BE, predicate=Quality(quality))
    verbs = object_verbs_for(described.noun.kinds)
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    second = action(draw, Wish(verbs, doer, pronoun, light=True, negated=False))
    return Sentence("pronoun", opening, AND, replace(second, front="subject"))


def _search(draw: Draw) -> Sentence:
    """Build a sentence like "The man is looking for the key, but he cannot find it"."""
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    theme = noun_phrase(draw, ("loseable",), DEFINITE_ONLY, doer)
    who, what = pronoun_for(draw, doer), pronoun_for(draw, theme)
    first = Clause(doer, SEARCH, progressive=True, object=theme)
    second = Clause(who or doer, FIND, modal=CAN, negated=True, object=what or theme)
    return Sentence("pronoun", first, BUT, second)


def _state_and_action(draw: Draw) -> Sentence:
    """Build a sentence like "The woman is sick, but she is working"."""
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    who = pronoun_for(draw, doer)
    plain = replace(doer, adjectives=()) if isinstance(doer, NounPhrase) else doer
    first = Clause(plain, BE, predicate=Quality(draw.pick(TROUBLES)))
    second = action(draw, Wish(DOINGS, who or doer, situation=NOW_OR_THEN, negated=False, light=True))
    return Sentence("pronoun", first, BUT, second)
