"""Draws clauses about what somebody does: the verb, who and what, when and where, and what stands in front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .draw import Draw
from .lexicon import (
    BE_ALLOWED_TO,
    CAN,
    CLOCKS,
    EVERY,
    FOR,
    FREQUENCIES,
    FUTURE_TIMES,
    HABIT_TIMES,
    HAVE_TO,
    MANNERS,
    MUST,
    PAST_TIMES,
    PRESENT_TIMES,
    SHOULD,
    SOON,
    TODAY,
    WANT_TO,
    WITH,
    WITHOUT,
    WOULD_LIKE_TO,
)
from .nouns import nouns_of
from .phrases import (
    DEFINITE_ONLY,
    DENIED_OBJECT,
    GENERIC,
    NEW_DENIED,
    NEW_OBJECT,
    OBJECT,
    PERSON_OBJECT,
    SUBJECT,
    Role,
    goal,
    host,
    landmark,
    noun_phrase,
    person,
    phrase,
    place,
    relatives,
    subject,
)
from .structures import (
    Adverbial,
    Argument,
    Clause,
    Front,
    Modal,
    NounPhrase,
    PrepositionalPhrase,
    Tense,
    Verb,
    noun_of,
)
from .verbs import (
    ARRIVE,
    BELONG,
    BUY,
    DATIVE,
    DITRANSITIVE,
    DRIVE,
    GO,
    HAVE,
    INTRANSITIVE,
    LAY,
    LIE,
    LIVE,
    PLAY,
    PREPOSITIONAL,
    PUT_UPRIGHT,
    SEE,
    SEPARABLE,
    SING,
    SIT,
    STAND,
    STAY,
    TRANSITIVE,
)

_MODALS: tuple[tuple[Modal, float], ...] = (
    (CAN, 22), (MUST, 10), (HAVE_TO, 16), (WANT_TO, 20), (BE_ALLOWED_TO, 12), (SHOULD, 10), (WOULD_LIKE_TO, 12),
)  # fmt: skip
_ANIMAL_MODALS = (CAN, WANT_TO)
_VERB_GROUPS: tuple[tuple[Sequence[Verb], float], ...] = (
    (TRANSITIVE, 46), (SEPARABLE, 16), (DATIVE, 9), ((BELONG,), 2), (PREPOSITIONAL, 6), (DITRANSITIVE, 7),
    (INTRANSITIVE, 8), ((GO, DRIVE), 5), ((ARRIVE, STAY, LIVE), 4), ((SIT, STAND, LIE), 5), ((LAY, PUT_UPRIGHT), 4),
)  # fmt: skip
_OBJECT_VERBS = TRANSITIVE + SEPARABLE + DATIVE + PREPOSITIONAL
_DEFINITE_THEMES = ("know", "love", "understand", "forget", "close", "open", "tidy", "find")
_TOGETHER = (PLAY, SING, GO, DRIVE)
_GOALS = ("garden", "kitchen", "room", "park", "school", "station", "market", "forest", "home", "village", "town")
_DRIVES = ("station", "home", "Berlin", "Hamburg", "village", "town", "school")
_HOMES = ("village", "town", "Berlin", "Hamburg")


@dataclass(frozen=True)
class Situation:
    """The time of a clause and its modality; a habit is present ("reads every day")."""

    tense: Tense = "present"
    modal: Modal | None = None
    habit: bool = False


NOW_OR_THEN = Situation()


@dataclass(frozen=True)
class Wish:
    """Constraints on a clause; None leaves a part to chance.

    A `light` clause has few adverbials and none in front; an `asked` one has only the place that its verb cannot
    lack.
    """

    verbs: tuple[Verb, ...] | None = None
    subject: Argument | None = None
    object: Argument | None = None
    situation: Situation | None = None
    negated: bool | None = None
    light: bool = False
    definite_object: bool = False
    definite_subject: bool = False
    asked: bool = False


def action(draw: Draw, wish: Wish = Wish()) -> Clause:
    """Return a statement about what somebody does."""
    verb = draw.pick(wish.verbs) if wish.verbs else draw_verb(draw)
    role: Role = DEFINITE_ONLY if wish.definite_subject or verb in (BELONG, LIE, STAND) else SUBJECT
    doer = wish.subject or subject(draw, verb.subjects, role)
    situation = wish.situation or draw_situation(draw, verb, doer)
    negated = _draw_negation(draw, doer, situation) if wish.negated is None else wish.negated
    theme = wish.object or draw_object(draw, verb, doer, situation, negated, wish.definite_object)
    clause = Clause(
        doer,
        verb,
        tense=situation.tense,
        progressive=is_progressive(verb, situation),
        modal=situation.modal,
        negated=negated,
        object=theme,
        recipient=person(draw, DEFINITE_ONLY, doer) if verb.recipient else None,
        recipient_last=draw.chance(0.4),
        adverbials=tuple(draw_adverbials(draw, verb, doer, situation, negated, wish)),
    )
    return clause if wish.light or wish.asked else replace(clause, front=_draw_front(draw, clause))


def draw_verb(draw: Draw) -> Verb:
    """Any verb, from a group of verbs as often as the group is worth."""
    return draw.pick(draw.weighted(_VERB_GROUPS))


def draw_situation(draw: Draw, verb: Verb, doer: Argument) -> Situation:
    """Return a time and a modality that the verb and its subject allow."""
    options: list[tuple[str, float]] = [("present", 28), ("past", 30), ("future", 13)]
    options = [option for option in options if option[0] in verb.tenses]
    if verb.momentary:
        options = options[1:]
    is_thing = not kinds_of(doer) & {"person", "animal"}
    if verb.modal and not is_thing:
        options.append(("modal", 18))
    if may_be_habit(verb) and not is_thing:
        options.append(("habit", 10))
    kind = draw.weighted(options)
    if kind == "modal":
        return _modal_situation(draw, doer)
    tense: Tense = "past" if kind == "past" else "future" if kind == "future" else "present"
    return Situation(tense, habit=kind == "habit")


def kinds_of(argument: Argument) -> frozenset[str]:
    """Return the kinds of an argument; names, question words and bare pronouns are people."""
    noun = noun_of(argument)
    return noun.kinds if noun else frozenset(("person",))


def may_be_habit(verb: Verb) -> bool:
    """Whether one does it again and again: to the same thing (wash), to others of a kind (eat), or to nothing."""
    if verb.stative or verb in (SIT, STAND, LIE, ARRIVE):
        return False
    return verb.repeatable or not verb.objects or verb.enjoyable


def is_progressive(verb: Verb, situation: Situation) -> bool:
    """Whether English says "is doing"; where things are, it also uses the progressive past."""
    if verb.stative or situation.habit or situation.modal:
        return False
    return situation.tense == "present" or (situation.tense == "past" and verb in (SIT, STAND, LIE))


def draw_object(
    draw: Draw,
    verb: Verb,
    doer: Argument | None,
    situation: Situation = NOW_OR_THEN,
    negated: bool = False,
    definite: bool = False,
) -> Argument | None:
    """Return an object that the verb selects, in a form that suits the clause."""
    if not verb.objects:
        return None
    noun = draw.pick([noun for noun in nouns_of(verb.objects) if doer is None or noun is not noun_of(doer)])
    if verb is HAVE and draw.chance(0.25):
        return relatives(draw, draw.pick(nouns_of(("kin",))), negated)
    if "person" in noun.kinds:
        return person(draw, DEFINITE_ONLY if definite or negated or situation.habit else PERSON_OBJECT, doer)
    role = DEFINITE_ONLY if definite else _object_role(verb, situation, negated)
    if verb is BUY:
        role = tuple((shape, weight) for shape, weight in role if shape.determiner is not None)
    return phrase(draw, noun, role, doer)


def _object_role(verb: Verb, situation: Situation, negated: bool) -> Role:
    if verb is HAVE:
        return NEW_DENIED if negated else NEW_OBJECT
    if verb.english in _DEFINITE_THEMES or (situation.habit and verb.repeatable):
        return DEFINITE_ONLY
    if situation.habit or (verb.infinitive == "mögen"):
        return GENERIC
    return DENIED_OBJECT if negated else OBJECT


def draw_adverbials(
    draw: Draw, verb: Verb, doer: Argument, situation: Situation, negated: bool, wish: Wish
) -> list[Adverbial]:
    """When, where, how and with whom, and the place that some verbs cannot do without."""
    found = _complements(draw, verb, doer)
    has_place = bool(found)
    if not wish.asked and not (wish.light and verb.recipient):
        found += _times(draw, verb, situation, negated, wish.light)
    if not has_place and verb.places and not wish.asked and draw.chance(0.1 if wish.light else 0.24):
        found.append(place(draw, verb.places, doer))
        has_place = True
    if negated or wish.light or wish.asked:
        return found
    if verb in _TOGETHER and draw.chance(0.25):
        found.append(_companion(draw, doer))
    elif verb.manners and not has_place and draw.chance(0.18):
        found.append(MANNERS[draw.pick(verb.manners)])
    elif verb is BUY and draw.chance(0.2):
        found.append(PrepositionalPhrase(FOR, person(draw, DEFINITE_ONLY, doer), "benefit"))
    return found


def _complements(draw: Draw, verb: Verb, doer: Argument) -> list[Adverbial]:
    if verb is GO:
        return [goal(draw, _GOALS, doer)]
    if verb is DRIVE:
        return [goal(draw, _DRIVES, doer)]
    if verb in (STAY, LIVE):
        homes = _HOMES if verb is LIVE else ("home", "garden", "kitchen", "room", "village")
        return [host(draw, doer) if draw.chance(0.35) else place(draw, homes, doer, "complement")]
    if verb is ARRIVE:
        return [place(draw, ("station", "Berlin", "Hamburg", "village"), doer, "complement")]
    if verb in (LAY, PUT_UPRIGHT):
        return [
            landmark(
                draw, ("on", "in", "under", "next to") if verb is LAY else ("on", "under", "next to"), moving=True
            )
        ]
    if verb in (SIT, STAND, LIE):
        return [landmark(draw, _seats(verb, doer), moving=False)]
    return []


def _seats(verb: Verb, doer: Argument) -> tuple[str, ...]:
    """Return whether a place suits: no people or animals in a bag, no things at the back of a house."""
    is_alive = bool(kinds_of(doer) & {"person", "animal"})
    if verb is SIT:
        return ("on", "next to", "in front of", "behind")
    if verb is STAND:
        return ("behind", "next to", "in front of") if is_alive else ("on", "under", "next to")
    return ("under", "behind", "next to", "in front of") if is_alive else ("on", "in", "under", "next to")


def _times(draw: Draw, verb: Verb, situation: Situation, negated: bool, light: bool) -> list[Adverbial]:
    if situation.habit:
        return _habit_times(draw, verb)
    is_dated = situation.tense == "future" or (situation.tense == "past" and verb is SEE)
    if verb.stative and not is_dated:
        return []
    found: list[Adverbial] = []
    timed = verb.timed and (situation.tense != "present" or situation.modal is not None) and not negated
    if timed and draw.chance(0.35):
        found.append(draw.pick(CLOCKS))
    if draw.chance(0.2 if light else 0.5):
        times = [time for time in _possible_times(situation) if not (negated and time is SOON)]
        found.append(draw.pick(times))
    return found


def _possible_times(situation: Situation) -> Sequence[Adverbial]:
    if situation.tense == "past":
        return PAST_TIMES
    if situation.tense == "future":
        return FUTURE_TIMES
    return (TODAY, *FUTURE_TIMES[:3]) if situation.modal else PRESENT_TIMES


def _habit_times(draw: Draw, verb: Verb) -> list[Adverbial]:
    if draw.chance(0.5):
        return [draw.pick(FREQUENCIES)]
    clock: list[Adverbial] = [draw.pick(CLOCKS)] if verb.timed and draw.chance(0.4) else []
    is_weekly = bool(verb.objects) or verb in (GO, DRIVE)
    return [*clock, draw.pick(HABIT_TIMES if is_weekly else HABIT_TIMES[:3])]


def _companion(draw: Draw, doer: Argument) -> PrepositionalPhrase:
    preposition = WITH if draw.chance(0.75) else WITHOUT
    kinds = draw.pick((("kin",), ("pet",)))
    return PrepositionalPhrase(preposition, noun_phrase(draw, kinds, DEFINITE_ONLY, doer), "companion")


def _draw_negation(draw: Draw, doer: Argument, situation: Situation) -> bool:
    """Not with every, many or no, where not could be meant for them; nor of habits; and must would become need not."""
    if situation.habit or situation.modal is MUST:
        return False
    if isinstance(doer, NounPhrase) and (not doer.determiner.is_definite or doer.determiner is EVERY):
        return False
    return draw.chance(0.2)


def _draw_front(draw: Draw, clause: Clause) -> Front:
    """Decide whether a time goes to the front: always with two objects, where its place would be ambiguous."""
    fronts: list[tuple[Front, float]] = [("subject", 0 if clause.recipient and clause.adverbials_in("time") else 55)]
    if clause.adverbials_in("time"):
        fronts.append(("time", 45))
    elif clause.adverbials_in("clock"):
        fronts.append(("clock", 25))
    elif clause.adverbials_in("place") and not clause.negated:
        fronts.append(("place", 15))
    return draw.weighted(fronts)


def _modal_situation(draw: Draw, doer: Argument) -> Situation:
    is_animal = "animal" in kinds_of(doer)
    modal = draw.pick(_ANIMAL_MODALS) if is_animal else draw.weighted(_MODALS)
    return Situation("past" if modal.preterite and draw.chance(0.3) else "present", modal)


def object_verbs_for(kinds: frozenset[str]) -> tuple[Verb, ...]:
    """Return the verbs that can have a noun of these kinds as their object and a person as their subject."""
    return tuple(
        verb
        for verb in _OBJECT_VERBS
        if kinds.intersection(verb.objects) and "person" in verb.subjects and verb is not HAVE
    )


def subject_verbs_for(kinds: frozenset[str]) -> tuple[Verb, ...]:
    """Return the verbs that can have a noun of these kinds as their subject."""
    verbs = _OBJECT_VERBS + INTRANSITIVE + (SIT, STAND, LIE, BELONG)
    return tuple(verb for verb in verbs if kinds.intersection(verb.subjects))
