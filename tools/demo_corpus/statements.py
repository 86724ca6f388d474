"""Sentences of one clause that state or command: what somebody does or is, how much, how many, and what there is."""

from __future__ import annotations

from dataclasses import replace

from .clauses import NOW_OR_THEN, Situation, Wish, action, draw_object, kinds_of
from .draw import Draw
from .lexicon import (
    ADJECTIVES,
    ALWAYS,
    BARE,
    CLOCKS,
    DEFINITE,
    FUTURE_TIMES,
    INDEFINITE,
    LIKE_TO,
    LONG,
    MANY,
    NAMES,
    OLD,
    PAST_TIMES,
    PLACE_NOUNS,
    PLACE_PREPOSITIONS,
    PLEASE,
    TODAY,
    adjective,
    adjectives_for,
)
from .nouns import EURO, INHABITANT, METRE, PAGE, YEAR, noun, nouns_of
from .phrases import (
    DEFINITE_ONLY,
    HE,
    LISTENER,
    SHE,
    SPEAKER,
    SPEAKERS,
    THEY,
    landmark,
    noun_phrase,
    phrase,
    place,
    subject,
)
from .structures import (
    Adjective,
    Adverbial,
    Argument,
    Clause,
    Existence,
    Measure,
    Noun,
    NounPhrase,
    PrepositionalPhrase,
    Profession,
    Pronoun,
    Quality,
    Sentence,
    Tense,
    Verb,
    agreement,
)
from .verbs import (
    BE,
    BUY,
    COST,
    COUNT,
    DATIVE,
    DITRANSITIVE,
    GET_UP,
    HAVE,
    HELP,
    INTRANSITIVE,
    LISTEN,
    PLAY,
    PLEASE_SOMEONE,
    PREPOSITIONAL,
    READ,
    REPAIR,
    SEARCH,
    SELL,
    SEPARABLE,
    SING,
    SLEEP,
    TRANSITIVE,
    WAIT,
    WASH,
)

STATES = tuple(adjective(word) for word in ("tired", "sick", "happy", "sad"))
TROUBLES = tuple(adjective(word) for word in ("tired", "sick", "sad"))
MERITS = tuple(adjective(word) for word in ("good", "beautiful", "interesting", "cheap", "fresh", "new"))
FAULTS = tuple(adjective(word) for word in ("expensive", "heavy", "old", "dirty", "dark", "long", "small"))
_ENJOYED = tuple(verb for verb in TRANSITIVE + SEPARABLE + DATIVE + PREPOSITIONAL + INTRANSITIVE if verb.enjoyable)
_COMMANDED = (
    *SEPARABLE, *DITRANSITIVE,
    READ, BUY, SEARCH, WASH, REPAIR,
    HELP, LISTEN, WAIT, GET_UP,
)  # fmt: skip
# What there is where.
_INVENTORY = {
    "kitchen": ("food", "drink", "furniture", "upright"),
    "room": ("furniture", "seat", "read"),
    "garden": ("animal", "furniture", "toy"),
    "park": ("animal", "young"),
    "market": ("food", "young"),
    "forest": ("animal",),
    "village": ("settled", "grazer"),
    "town": ("building",),
}
# Things compared with similar things, by the first kind that fits.
_SORTS = ("person", "animal", "food", "drink", "worn", "furniture", "vehicle", "homely", "building", "place", "text")
# What things cost, by the first kind that fits.
_PRICES = (
    (("food", "drink"), (2, 15)),
    (("read", "upright", "toy", "hollow"), (5, 150)),
    (("furniture", "worn", "surface"), (20, 999)),
    (("vehicle",), (150, 9999)),
)


def statement(draw: Draw) -> Sentence:
    """Somebody does something."""
    return Sentence("statement", action(draw))


def preference(draw: Draw) -> Sentence:
    """To like to do something (gern), or to like something (gefallen)."""
    doer = subject(draw, ("person",), DEFINITE_ONLY)
    negated = draw.chance(0.22)
    if draw.chance(0.5):
        return Sentence("preference", pleasing(draw, doer, negated, "past" if draw.chance(0.2) else "present"))
    verb = draw.pick(_ENJOYED)
    situation = Situation(modal=LIKE_TO, habit=True)
    clause = action(draw, Wish((verb,), doer, situation=situation, negated=negated, asked=True))
    if verb in (PLAY, SING, SLEEP) and draw.chance(0.5):
        clause = replace(clause, adverbials=(place(draw, verb.places, doer),))
    return Sentence("preference", clause)


def pleasing(draw: Draw, doer: Argument, negated: bool, tense: Tense = "present") -> Clause:
    """Somebody likes something: in German it pleases them."""
    theme = noun_phrase(draw, PLEASE_SOMEONE.objects, DEFINITE_ONLY, doer)
    return Clause(doer, PLEASE_SOMEONE, tense=tense, negated=negated, object=theme)


def description(draw: Draw) -> Sentence:
    """Somebody or something is as an adjective says, also compared with another."""
    if draw.chance(0.3):
        return Sentence("description", state(draw, subject(draw, ("person",), DEFINITE_ONLY)))
    described = noun_phrase(draw, ("person", "animal", "food", "drink", "goods", "place", "text"), DEFINITE_ONLY)
    quality = fitting_adjective(draw, described)
    if quality is None:
        return Sentence("description", state(draw, draw.pick(NAMES)))
    tense: Tense = "past" if draw.chance(0.22) else "present"
    comparison = _comparison(draw, described, quality) if draw.chance(0.35) else None
    clause = Clause(described, BE, tense, predicate=comparison or Quality(quality), negated=draw.chance(0.2))
    return Sentence("description", clause)


def state(draw: Draw, who: Argument, negated: bool | None = None) -> Clause:
    """Somebody is tired, sick, happy or sad."""
    who = replace(who, adjectives=()) if isinstance(who, NounPhrase) else who
    tenses: tuple[tuple[Tense, float], ...] = (("present", 60), ("past", 32), ("future", 8))
    tense = draw.weighted(tenses)
    times = {"present": (TODAY,), "past": PAST_TIMES[:2], "future": FUTURE_TIMES[:2]}[tense]
    adverbials: tuple[Adverbial, ...] = (draw.pick(times),) if draw.chance(0.3) else ()
    if tense == "present" and draw.chance(0.08) and not negated:
        adverbials, negated = (ALWAYS,), False
    negated = draw.chance(0.2) if negated is None else negated
    return Clause(who, BE, tense, negated=negated, predicate=Quality(draw.pick(STATES)), adverbials=adverbials)


def fitting_adjective(
    draw: Draw, described: NounPhrase, choice: tuple[Adjective, ...] = ADJECTIVES
) -> Adjective | None:
    """Return an adjective out of the `choice` that suits the noun and is of another sort than those it already has."""
    taken = {adjective.rank for adjective in described.adjectives}
    suitable = [adjective for adjective in adjectives_for(described.noun) if adjective in choice]
    fitting = [adjective for adjective in suitable if adjective.rank not in taken]
    return draw.pick(fitting) if fitting else None


def _comparison(draw: Draw, described: NounPhrase, quality: Adjective) -> Quality | None:
    """Older than, as old as, another thing of which the adjective can be said."""
    others = [other for other in nouns_of(tuple(sorted(quality.kinds))) if _is_comparable(other, described.noun)]
    if not others or not quality.german_comparative:
        return None
    standard = replace(phrase(draw, draw.pick(others), DEFINITE_ONLY), adjectives=())
    return Quality(quality, "equal" if draw.chance(0.35) else "comparative", standard)


def _is_comparable(other: Noun, described: Noun) -> bool:
    """Of the same sort of thing: people with people, food with food."""
    return other is not described and _sort(described) is not None and _sort(other) == _sort(described)


def _sort(thing: Noun) -> str | None:
    return next((sort for sort in _SORTS if sort in thing.kinds), None)


def profession(draw: Draw) -> Sentence:
    """Somebody is a teacher; the nouns are masculine, so he is a man."""
    men = [man for man in nouns_of(("male",), "worker") if "young" not in man.kinds]
    others: tuple[Argument, ...] = (HE, *NAMES[2:])
    who = draw.pick(others) if draw.chance(0.35) else phrase(draw, draw.pick(men), DEFINITE_ONLY)
    if agreement(who)[1]:
        who = HE
    clause = Clause(who, BE, predicate=Profession(draw.pick(nouns_of(("worker",)))), negated=draw.chance(0.3))
    return Sentence("profession", replace(clause, tense="past") if draw.chance(0.25) else clause)


def location(draw: Draw) -> Sentence:
    """Somebody or something is somewhere."""
    tense: Tense = "past" if draw.chance(0.25) else "present"
    who = subject(draw, ("person", "pet", "loseable"), DEFINITE_ONLY)
    return Sentence("location", Clause(who, BE, tense, negated=draw.chance(0.2), adverbials=(whereabouts(draw, who),)))


def whereabouts(draw: Draw, who: Argument) -> Adverbial:
    """Return a place where such a person or thing can be."""
    kinds = kinds_of(who)
    if not kinds & {"person", "animal"}:
        return landmark(draw, ("on", "in", "under", "next to"), moving=False)
    return place(
        draw, ("garden", "kitchen", "room", "park", "school", "station", "home", "here", "Berlin"), who, "complement"
    )


def existence(draw: Draw) -> Sentence:
    """There is something somewhere."""
    name = draw.pick(tuple(_INVENTORY))
    thing = draw.pick(nouns_of(_INVENTORY[name]))
    question = draw.chance(0.25)
    negated = not question and draw.chance(0.3)
    where = PrepositionalPhrase(PLACE_PREPOSITIONS[name][0], NounPhrase(PLACE_NOUNS[name], DEFINITE), "place")
    theme = _existing(draw, thing, denied=negated or question)
    tense: Tense = "past" if draw.chance(0.2) else "present"
    return Sentence("existence", Existence(theme, where, tense, negated, "question" if question else "statement"))


def _existing(draw: Draw, thing: Noun, denied: bool) -> NounPhrase:
    adjectives = (draw.pick(adjectives_for(thing)),) if draw.chance(0.25) else ()
    if "mass" in thing.kinds:
        return NounPhrase(thing, BARE, adjectives=adjectives)
    shape = draw.weighted((("one", 35), ("some", 15), ("many", 15), ("counted", 35))) if not denied else "some"
    if shape == "one":
        return NounPhrase(thing, INDEFINITE, adjectives=adjectives)
    if shape == "counted":
        return NounPhrase(thing, BARE, True, adjectives, count=draw.whole(2, 6))
    return NounPhrase(thing, MANY if shape == "many" else BARE, True, adjectives)


def amount(draw: Draw) -> Sentence:
    """Return a sentence about a number."""
    builders = ((_price, 30), (_age, 20), (_count, 22), (_bulk, 12), (_population, 8), (_pages, 5), (_length, 5))
    return Sentence("number", draw.weighted(builders)(draw))


def _number(draw: Draw, low: int, high: int) -> int:
    """Return a number that does not end in one, after which German and its nouns waver (einhundert und ein Euro)."""
    number = draw.whole(low, high)
    return number + 1 if number % 100 == 1 else number


def _counted(unit: Noun, number: int) -> NounPhrase:
    return NounPhrase(unit, BARE, True, count=number)


def _price(draw: Draw) -> Clause:
    kinds, (low, high) = draw.pick(_PRICES)
    goods = [noun for noun in nouns_of(kinds) if "goods" in noun.kinds]
    item = phrase(draw, draw.pick(goods), DEFINITE_ONLY)
    return Clause(item, COST, object=_counted(EURO, _number(draw, low, high)))


def _age(draw: Draw) -> Clause:
    kind, low, high = draw.pick((("adult", 20, 99), ("adult", 20, 99), ("young", 2, 15), ("building", 21, 900)))
    who = noun_phrase(draw, (kind,), DEFINITE_ONLY, excluded="animal")
    if agreement(who)[1]:
        who = NounPhrase(who.noun, DEFINITE)
    return Clause(who, BE, predicate=Measure(_number(draw, low, high), YEAR, OLD))


def _count(draw: Draw) -> Clause:
    clause = action(draw, Wish((COUNT,), definite_subject=True, negated=False))
    counted = draw.pick(nouns_of(COUNT.objects))
    return replace(clause, object=_counted(counted, _number(draw, 13, draw.pick((99, 999, 9999)))))


def _bulk(draw: Draw) -> Clause:
    """Buying or selling a large number of things."""
    verb: Verb = draw.pick((BUY, SELL))
    situation = Situation(draw.pick(("past", "past", "future")))
    clause = action(draw, Wish((verb,), definite_subject=True, negated=False, situation=situation))
    goods = [noun for noun in nouns_of(("countable",)) if "goods" in noun.kinds]
    return replace(clause, object=_counted(draw.pick(goods), _number(draw, 13, draw.pick((99, 999)))))


def _population(draw: Draw) -> Clause:
    name, low, high = draw.pick((("village", 50, 2999), ("town", 3000, 9999)))
    return Clause(_thing(draw, name), HAVE, object=_counted(INHABITANT, _number(draw, low, high)))


def _pages(draw: Draw) -> Clause:
    return Clause(_thing(draw, "book"), HAVE, object=_counted(PAGE, _number(draw, 40, 1500)))


def _length(draw: Draw) -> Clause:
    name, low, high = draw.pick((("garden", 12, 200), ("park", 100, 3000), ("train", 60, 400)))
    return Clause(_thing(draw, name), BE, predicate=Measure(_number(draw, low, high), METRE, LONG))


def _thing(draw: Draw, name: str) -> NounPhrase:
    item = phrase(draw, noun(name), DEFINITE_ONLY)
    return NounPhrase(item.noun, DEFINITE, adjectives=item.adjectives) if item.plural else item


def command(draw: Draw) -> Sentence:
    """Please do, please do not; said to one person whom the speaker calls du."""
    return Sentence("command", request(draw))


def request(draw: Draw) -> Clause:
    """Return the clause of a command."""
    verb = draw.pick(_COMMANDED)
    negated = not verb.recipient and draw.chance(0.15)
    theme = draw_object(draw, verb, LISTENER, NOW_OR_THEN, definite=True)
    recipients: tuple[Argument, ...] = (SPEAKER, SPEAKER, SPEAKERS, HE, SHE, THEY, *NAMES)
    recipient = draw.pick(recipients) if verb.recipient else None
    times: tuple[Adverbial, ...] = (TODAY, *FUTURE_TIMES[:1], draw.pick(CLOCKS))
    has_noun = theme is not None and not isinstance(theme, Pronoun)
    when = (draw.pick(times),) if draw.chance(0.35) and not negated and not has_noun else ()
    return Clause(
        LISTENER, verb, mood="command", negated=negated, object=theme, recipient=recipient,
        recipient_last=draw.chance(0.3), adverbials=(PLEASE, *when),
    )  # fmt: skip
