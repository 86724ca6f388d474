"""Questions: yes or no, who, what, which, how many, when, where and why."""

from __future__ import annotations

from dataclasses import replace

from .clauses import NOW_OR_THEN, Situation, Wish, action, draw_situation, draw_verb
from .draw import Draw
from .lexicon import ANY, BARE, HOW_MANY, QUESTION_WORDS, WHICH
from .nouns import nouns_of
from .phrases import DEFINITE_ONLY, LISTENER, subject
from .statements import location, pleasing, state
from .structures import Adverb, Argument, Clause, Front, Interrogative, NounPhrase, Sentence, Verb, agreement
from .verbs import (
    ARRIVE,
    BE,
    DATIVE,
    DITRANSITIVE,
    DRIVE,
    GO,
    HAVE,
    INTRANSITIVE,
    LIE,
    LIVE,
    PREPOSITIONAL,
    SEPARABLE,
    SIT,
    STAND,
    TRANSITIVE,
)

_ASKABLE = tuple(verb for verb in TRANSITIVE + SEPARABLE + DATIVE + PREPOSITIONAL if "person" in verb.subjects)
_ABOUT_PEOPLE = tuple(verb for verb in _ASKABLE if "person" in verb.objects)
_ABOUT_THINGS = tuple(verb for verb in _ASKABLE if "person" not in verb.objects)
_LOCATED = tuple(verb for verb in _ABOUT_THINGS + PREPOSITIONAL + INTRANSITIVE if verb.places)
_EVENTS = tuple(
    verb for verb in SEPARABLE + DATIVE + INTRANSITIVE + TRANSITIVE if not verb.stative and "person" in verb.subjects
)


def yes_no_question(draw: Draw) -> Sentence:
    """Ask whether somebody does something or is so."""
    kind = draw.weighted((("action", 68), ("state", 12), ("place", 10), ("liking", 10)))
    if kind == "state":
        clause = state(draw, asked_about(draw, ("person",)), negated=False)
    elif kind == "place":
        clause = replace(_clause(location(draw)), negated=False)
    elif kind == "liking":
        clause = pleasing(draw, asked_about(draw, ("person",)), negated=False)
    else:
        verb = draw_verb(draw)
        wish = Wish((verb,), asked_about(draw, verb.subjects), negated=False, light=verb.recipient)
        clause = _with_any(action(draw, wish))
    return Sentence("yes-no question", replace(clause, mood="question", front="nothing"))


def asked_about(draw: Draw, kinds: tuple[str, ...]) -> Argument:
    """Whom a question is about: hardly the speaker, and often the listener."""
    doer = subject(draw, kinds, DEFINITE_ONLY)
    is_speaker = agreement(doer)[0] == 1
    return LISTENER if is_speaker or ("person" in kinds and draw.chance(0.15)) else doer


def who_question(draw: Draw) -> Sentence:
    """Who does it?"""
    wish = Wish(_ASKABLE + INTRANSITIVE + (LIVE, GO, DRIVE), Interrogative(True), negated=False, light=True)
    return _question("who question", action(draw, wish), "subject")


def object_question(draw: Draw) -> Sentence:
    """Whom or what, which of them, how many of them?"""
    kind = draw.weighted((("who", 30), ("what", 30), ("which", 25), ("how many", 15)))
    verb = draw.pick(_ABOUT_PEOPLE if kind == "who" else _ABOUT_THINGS)
    if kind == "how many":
        verb = draw.pick([verb for verb in _ABOUT_THINGS if not verb.stative or verb is HAVE])
    clause = _asked(draw, verb, _interrogative(draw, kind, verb))
    return _question("object question", clause, "object")


def recipient_question(draw: Draw) -> Sentence:
    """To whom?"""
    clause = _asked(draw, draw.pick(DITRANSITIVE), None)
    return _question(
        "recipient question", replace(clause, recipient=Interrogative(True), recipient_last=True), "recipient"
    )


def circumstance_question(draw: Draw) -> Sentence:
    """When, where, where to and why?"""
    kind = draw.weighted((("when", 28), ("where", 24), ("where is", 14), ("where to", 12), ("why", 22)))
    if kind == "where is":
        return _where_is(draw)
    if kind == "where to":
        return _fronted(_asked(draw, draw.pick((GO, DRIVE)), None), QUESTION_WORDS["where to"], "complement")
    if kind == "where":
        return _where(draw)
    if kind == "when":
        clause = _asked(draw, draw.pick((*_EVENTS, ARRIVE)), None, past_or_future=True)
        return _fronted(clause, QUESTION_WORDS["when"], "time")
    clause = _asked(draw, draw.pick(_EVENTS), None, negated=draw.chance(0.35))
    return _fronted(clause, QUESTION_WORDS["why"], "reason")


def _where(draw: Draw) -> Sentence:
    if draw.chance(0.3):
        clause = _asked(draw, draw.pick((SIT, STAND, LIE, LIVE)), None)
        word = QUESTION_WORDS["where"]
        return _fronted(clause, Adverb(word.english, word.german, "complement"), "complement")
    return _fronted(_asked(draw, draw.pick(_LOCATED), None), QUESTION_WORDS["where"], "place")


def _where_is(draw: Draw) -> Sentence:
    who = subject(draw, ("person", "pet", "loseable"), DEFINITE_ONLY)
    clause = Clause(who, BE, "past" if draw.chance(0.25) else "present")
    return _fronted(clause, QUESTION_WORDS["where"], "place")


def _asked(
    draw: Draw,
    verb: Verb,
    theme: Argument | None,
    doer: Argument | None = None,
    *,
    negated: bool = False,
    past_or_future: bool = False,
) -> Clause:
    """Return a clause without adverbials, in the present, the past or the future or with a modal, but no habit."""
    doer = doer or asked_about(draw, verb.subjects)
    situation = _single_event(draw, verb, doer, past_or_future)
    return action(draw, Wish((verb,), doer, theme, situation, negated, asked=True, definite_object=True))


def _single_event(draw: Draw, verb: Verb, doer: Argument, past_or_future: bool) -> Situation:
    situation = draw_situation(draw, verb, doer)
    if past_or_future and (situation.habit or situation == NOW_OR_THEN):
        return Situation(draw.pick(("past", "future")))
    if not situation.habit:
        return situation
    return Situation("past") if verb.momentary else NOW_OR_THEN


def _interrogative(draw: Draw, kind: str, verb: Verb) -> Argument:
    if kind in ("who", "what"):
        return Interrogative(kind == "who")
    things = [thing for thing in nouns_of(verb.objects) if kind == "which" or "mass" not in thing.kinds]
    if not things:
        return Interrogative(False)
    thing = draw.pick(things)
    if kind == "how many":
        return NounPhrase(thing, HOW_MANY, True)
    return NounPhrase(thing, WHICH, draw.chance(0.25) and "mass" not in thing.kinds)


def _question(frame: str, clause: Clause, front: Front) -> Sentence:
    return Sentence(frame, replace(clause, mood="question", front=front))


def _fronted(clause: Clause, word: Adverb, front: Front) -> Sentence:
    """Return the question word in front, instead of an adverbial of its slot."""
    kept = tuple(adverbial for adverbial in clause.adverbials if adverbial.slot != word.slot)
    return _question("circumstance question", replace(clause, adverbials=(word, *kept)), front)


def _with_any(clause: Clause) -> Clause:
    """Have you any brothers: a question about having asks with any."""
    theme = clause.object
    if clause.verb is not HAVE or not isinstance(theme, NounPhrase) or theme.determiner is not BARE or theme.count:
        return clause
    return replace(clause, object=replace(theme, determiner=ANY))


def _clause(sentence: Sentence) -> Clause:
    assert isinstance(sentence.clause, Clause)
    return sentence.clause
