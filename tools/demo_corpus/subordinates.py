"""Sentences with a subordinate clause after a conjunction, where the German verb stands last."""

from __future__ import annotations

from dataclasses import replace

from .clauses import NOW_OR_THEN, Situation, Wish, action
from .draw import Draw
from .lexicon import (
    ALTHOUGH,
    BECAUSE,
    BEFORE,
    CAN,
    HAVE_TO,
    IF,
    MUST,
    SHOULD,
    THAT,
    WANT_TO,
    WHEN,
    WHETHER,
    WHY,
    adjective,
)
from .phrases import DEFINITE_ONLY, IT_EXPLETIVE, LISTENER, pronoun_for, subject
from .statements import FAULTS, MERITS, STATES, TROUBLES, fitting_adjective, pleasing, request, state
from .structures import (
    Adjective,
    Adverbial,
    Argument,
    Clause,
    Conjunction,
    NounPhrase,
    Pronoun,
    Quality,
    Sentence,
    Subordinate,
    Tense,
)
from .verbs import (
    ARRIVE,
    ASK,
    BE,
    BELIEVE,
    BUY,
    CALL,
    CLOSE,
    DOINGS,
    DRINK,
    DRIVE,
    EAT,
    GO,
    HELP,
    HOPE,
    KNOW_THAT,
    OPEN,
    PICK_UP,
    PLAY,
    PUT_ON,
    RAIN,
    READ,
    SAY,
    SEARCH,
    SING,
    SLEEP,
    STAY,
    VISIT,
    WAIT,
    WEAR,
    WORK,
)

# What the weather, a quality of a thing, or a wish can make people do.
_WEATHER_DOINGS = (STAY, PLAY, WORK, SLEEP, DRINK, OPEN, CLOSE, PUT_ON, WEAR, GO, DRIVE, SING, WAIT)
_OUTDOOR_DOINGS = (PLAY, SING, GO, DRIVE, WORK, WAIT)
_QUALITY_DOINGS = (BUY, READ, EAT, DRINK, WEAR, PUT_ON)
_WISH_DOINGS = (GO, DRIVE, BUY, SEARCH, CALL)
# What happens that one reckons with, and what one does after something else.
_OCCASIONS = (CALL, HELP, VISIT, PICK_UP, SLEEP, WAIT, ARRIVE)
_LATER_DOINGS = (GO, DRIVE, CALL, PICK_UP, VISIT, EAT, READ, BUY)
_REASONED: tuple[tuple[Situation, float], ...] = (
    (NOW_OR_THEN, 40),
    (Situation("past"), 40),
    (Situation(modal=HAVE_TO), 10),
    (Situation(modal=CAN), 10),
)
_CONDITIONED: tuple[tuple[Situation, float], ...] = (
    (Situation("future"), 50),
    (Situation(modal=SHOULD), 15),
    (Situation(modal=MUST), 15),
    (Situation(modal=CAN), 20),
)


def that_clause(draw: Draw) -> Sentence:
    """Somebody knows, believes, hopes or says that something is so."""
    verb = draw.pick((KNOW_THAT, BELIEVE, HOPE, SAY))
    matrix = Clause(_somebody(draw), verb, negated=verb is BELIEVE and draw.chance(0.4))
    return Sentence("that clause", replace(matrix, tail=Subordinate(THAT, _content(draw))))


def indirect_question(draw: Draw) -> Sentence:
    """Somebody asks or does not know whether, why or when; or: do you know whether?"""
    conjunction = draw.weighted(((WHETHER, 70), (WHY, 18), (WHEN, 12)))
    content = _dated_content(draw) if conjunction is WHEN else _content(draw)
    tail = Subordinate(conjunction, content if conjunction is WHY else replace(content, negated=False))
    kind = draw.weighted((("ask", 35), ("ignorance", 40), ("question", 25)))
    if kind == "question":
        return Sentence("indirect question", Clause(LISTENER, KNOW_THAT, mood="question", front="nothing", tail=tail))
    if kind == "ask":
        return Sentence("indirect question", Clause(_somebody(draw), ASK, tail=tail))
    return Sentence("indirect question", Clause(_somebody(draw), KNOW_THAT, negated=True, tail=tail))


def _somebody(draw: Draw) -> Argument:
    return subject(draw, ("person",), DEFINITE_ONLY)


def _content(draw: Draw) -> Clause:
    """Draw a verb of knowing or asking."""
    kind = draw.weighted((("action", 72), ("state", 16), ("liking", 12)))
    if kind == "state":
        return state(draw, _somebody(draw))
    if kind == "liking":
        return pleasing(draw, _somebody(draw), draw.chance(0.2))
    return action(draw, Wish(light=True, definite_subject=True))


def _dated_content(draw: Draw) -> Clause:
    """Build a clause with "when", which asks about the past or the future and has no other time."""
    situation = Situation(draw.pick(("past", "future")))
    wish = Wish(DOINGS, situation=situation, negated=False, definite_subject=True, asked=True, definite_object=True)
    return action(draw, wish)


def reason(draw: Draw) -> Sentence:
    """Because and although, after the main clause or before it."""
    conjunction = BECAUSE if draw.chance(0.65) else ALTHOUGH
    is_because = conjunction is BECAUSE
    kind = draw.weighted((("weather", 30), ("trouble", 30), ("quality", 35), ("wish", 15 if is_because else 0)))
    main = _reasoned(draw, kind, is_because)
    cause = _cause(draw, kind, main, is_merit=is_because != main.negated)
    if cause.subject is IT_EXPLETIVE and draw.chance(0.45):
        return Sentence("reason", replace(main, lead=Subordinate(conjunction, cause)))
    if kind == "trouble" and draw.chance(0.3):
        return Sentence("reason", _turned(main, cause, conjunction))
    return Sentence("reason", replace(main, tail=Subordinate(conjunction, cause)))


def _reasoned(draw: Draw, kind: str, is_because: bool) -> Clause:
    """Draw the clause that has the reason: trouble prevents an action (because), or does not (although)."""
    is_denied = is_because and kind in ("weather", "quality") and draw.chance(0.35)
    verbs = {"weather": _WEATHER_DOINGS, "quality": _QUALITY_DOINGS, "wish": _WISH_DOINGS}.get(kind, DOINGS)
    if is_denied and kind == "weather":
        verbs = _OUTDOOR_DOINGS
    doer = _somebody(draw)
    wish = Wish(
        verbs,
        replace(doer, adjectives=()) if isinstance(doer, NounPhrase) else doer,
        situation=draw.weighted(_REASONED[:2] if kind == "quality" else _REASONED),
        light=True,
        negated=is_denied or (is_because and kind == "trouble"),
        definite_object=kind == "quality",
    )
    return action(draw, wish)


def _cause(draw: Draw, kind: str, main: Clause, is_merit: bool) -> Clause:
    """How the subject feels or what it wants, a quality of the object, or else the weather."""
    tense: Tense = "past" if main.tense == "past" else "present"
    who = pronoun_for(draw, main.subject)
    quality = _quality_of_object(draw, main, tense, MERITS if is_merit else FAULTS) if kind == "quality" else None
    if quality is not None:
        return quality
    if kind == "trouble" and who is not None:
        return Clause(who, BE, tense, predicate=Quality(draw.pick(TROUBLES)))
    if kind == "wish" and who is not None:
        situation = Situation(tense, draw.pick((WANT_TO, HAVE_TO)))
        verbs = tuple(verb for verb in DOINGS if verb is not main.verb)
        return action(draw, Wish(verbs, who, situation=situation, light=True, negated=False))
    return _weather(draw, tense)


def _quality_of_object(draw: Draw, main: Clause, tense: Tense, choice: tuple[Adjective, ...]) -> Clause | None:
    """ "… because it is cheap": the pronoun has the gender of the object."""
    theme = main.object
    if not isinstance(theme, NounPhrase) or "person" in theme.noun.kinds:
        return None
    pronoun = pronoun_for(draw, theme)
    quality = fitting_adjective(draw, theme, choice)
    if pronoun is None or quality is None:
        return None
    return Clause(pronoun, BE, tense, predicate=Quality(quality))


def _weather(draw: Draw, tense: Tense) -> Clause:
    if draw.chance(0.5):
        return Clause(IT_EXPLETIVE, RAIN, tense, progressive=tense == "present")
    return Clause(IT_EXPLETIVE, BE, tense, predicate=Quality(adjective(draw.pick(("cold", "hot", "dark")))))


def _turned(main: Clause, cause: Clause, conjunction: Conjunction) -> Clause:
    """Put the cause first, with the noun there and the pronoun in the main clause."""
    lead = Subordinate(conjunction, replace(cause, subject=main.subject))
    return replace(main, subject=cause.subject, lead=lead)


def condition(draw: Draw) -> Sentence:
    """If something happens, something else will, should, must or can be done."""
    kind = draw.weighted((("weather", 40), ("state", 15), ("action", 45)))
    situation = draw.weighted(_CONDITIONED)
    verbs = _WEATHER_DOINGS if kind == "weather" else DOINGS
    main = action(draw, Wish(verbs, _somebody(draw), situation=situation, light=True))
    main = replace(main, adverbials=_without_times(main))
    subordinate = Subordinate(IF, _supposition(draw, kind, main))
    if draw.chance(0.6):
        return Sentence("condition", replace(main, lead=subordinate))
    return Sentence("condition", replace(main, tail=subordinate))


def _supposition(draw: Draw, kind: str, main: Clause) -> Clause:
    if kind == "weather":
        return replace(_weather(draw, "present"), progressive=False)
    if kind == "state" and isinstance(main.subject, Pronoun):
        return Clause(main.subject, BE, predicate=Quality(draw.pick(STATES)))
    wish = Wish(
        _OCCASIONS, _somebody(draw), situation=NOW_OR_THEN, negated=draw.chance(0.2), light=True, definite_object=True
    )
    return _timeless(action(draw, wish))


def _timeless(clause: Clause) -> Clause:
    """Return the simple present of an if or before clause, without a time."""
    return replace(clause, progressive=False, adverbials=_without_times(clause))


def _without_times(clause: Clause) -> tuple[Adverbial, ...]:
    return tuple(adverbial for adverbial in clause.adverbials if adverbial.slot not in ("time", "clock"))


def sequence(draw: Draw) -> Sentence:
    """One will do something before one does something else; also as a request."""
    is_request = draw.chance(0.3)
    doer = LISTENER if is_request else _somebody(draw)
    who = pronoun_for(draw, doer) or LISTENER
    wish = Wish(DOINGS, doer, situation=Situation("future"), negated=False, light=True)
    first = replace(request(draw), negated=False) if is_request else action(draw, wish)
    first = replace(first, adverbials=_without_times(first))
    verbs = tuple(verb for verb in _LATER_DOINGS if verb is not first.verb)
    second = _timeless(action(draw, Wish(verbs, who, situation=NOW_OR_THEN, negated=False, light=True)))
    return Sentence("sequence", replace(first, tail=Subordinate(BEFORE, second)))
