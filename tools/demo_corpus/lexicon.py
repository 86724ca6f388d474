"""Determiners, adjectives, adverbials, prepositions, modals and the other small classes of words."""

from __future__ import annotations

from functools import cache
from typing import Literal

from .nouns import noun
from .number_words import english_clock, german_clock
from .structures import (
    Adjective,
    Adverb,
    Argument,
    Clause,
    Conjunction,
    Determiner,
    Modal,
    Name,
    Noun,
    NounPhrase,
    Preposition,
)

DEFINITE = Determiner("", "definite", ("the", "the"))
INDEFINITE = Determiner("ein", "ein", ("a", ""), is_definite=False)
BARE = Determiner("", "none", ("", ""), is_definite=False)
NEGATIVE = Determiner("kein", "ein", ("no", "no"), is_definite=False)
ANY = Determiner("", "none", ("any", "any"), is_definite=False)
THIS = Determiner("dies", "der", ("this", "these"))
EVERY = Determiner("jed", "der", ("every", ""))
WHICH = Determiner("welch", "der", ("which", "which"))
MANY = Determiner("viel", "plural", ("", "many"), is_definite=False)
SOME = Determiner("einig", "plural", ("", "some"), is_definite=False)
HOW_MANY = Determiner("wie viel", "plural", ("", "how many"), is_definite=False)
MY = Determiner("mein", "ein", ("my", "my"))
YOUR = Determiner("dein", "ein", ("your", "your"))
HIS = Determiner("sein", "ein", ("his", "his"))
HER = Determiner("ihr", "ein", ("her", "her"))
OUR = Determiner("unser", "ein", ("our", "our"))
THEIR = Determiner("ihr", "ein", ("their", "their"))
POSSESSIVES = (MY, YOUR, HIS, HER, OUR, THEIR)

NAMES = (Name("Anna", "feminine"), Name("Lena", "feminine"), Name("Peter", "masculine"), Name("Paul", "masculine"))


def _adjective(german: str, english: str, kinds: str, rank: int, stem: str = "", compared: str = "") -> Adjective:
    german_comparative, _, english_comparative = compared.partition("/")
    return Adjective(
        german, english, frozenset(kinds.split()), rank, stem or german, german_comparative, english_comparative
    )


OLD = _adjective("alt", "old", "adult animal lasting dated scenic building text", 3, compared="älter/older")
LONG = _adjective("lang", "long", "text coach", 1, compared="länger/longer")
ADJECTIVES = (
    _adjective("gut", "good", "food drink made", 0),
    _adjective("schön", "beautiful", "scenic lasting animal", 0, compared="schöner/more beautiful"),
    _adjective("interessant", "interesting", "text", 2, compared="interessanter/more interesting"),
    _adjective("teuer", "expensive", "goods", 2, stem="teur", compared="teurer/more expensive"),
    _adjective("billig", "cheap", "goods", 2, compared="billiger/cheaper"),
    _adjective("freundlich", "friendly", "person pet", 0, compared="freundlicher/friendlier"),
    _adjective("glücklich", "happy", "person", 2),
    _adjective("müde", "tired", "person animal", 2, stem="müd"),
    _adjective("krank", "sick", "person animal", 2),
    _adjective("traurig", "sad", "person told", 2, compared="trauriger/sadder"),
    _adjective("groß", "big", "animal sized", 1, compared="größer/bigger"),
    _adjective("groß", "tall", "person", 1, compared="größer/taller"),
    _adjective("klein", "small", "animal sized young", 1, compared="kleiner/smaller"),
    LONG,
    _adjective("schwer", "heavy", "heavy", 2, compared="schwerer/heavier"),
    _adjective("leer", "empty", "hollow", 2),
    _adjective("schmutzig", "dirty", "soiled", 2),
    _adjective("frisch", "fresh", "food", 2),
    _adjective("kalt", "cold", "drink hot", 2),
    _adjective("heiß", "hot", "hot", 2),
    _adjective("dunkel", "dark", "shady", 2, stem="dunkl"),
    OLD,
    _adjective("neu", "new", "lasting dated text building", 3),
    _adjective("jung", "young", "adult animal", 3, compared="jünger/younger"),
    _adjective("rot", "red", "coloured", 4),
    _adjective("blau", "blue", "coloured", 4),
)
_BY_ENGLISH = {adjective.english: adjective for adjective in ADJECTIVES}


def adjective(english: str) -> Adjective:
    """Return the adjective with this English form.

    Raises:
        KeyError: if the lexicon has no such adjective.
    """
    return _BY_ENGLISH[english]


@cache
def adjectives_for(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives that suit a noun."""
    return tuple(adjective for adjective in ADJECTIVES if adjective.kinds & noun.kinds)


# Modals. "Must" has no negation and "should" no past here, because those would change the German verb.
CAN = Modal(
    ("kann", "kannst", "kann"), "können", ("konnte", "konntest", "konnten"), ("can", "can", "could"), (), "auxiliary"
)
MUST = Modal(("muss", "musst", "muss"), "müssen", None, ("must", "must", ""), (), "auxiliary")
HAVE_TO = Modal(
    ("muss", "musst", "muss"), "müssen", ("musste", "musstest", "mussten"), ("have", "has", "had"), ("to",), "do"
)
WANT_TO = Modal(
    ("will", "willst", "will"), "wollen", ("wollte", "wolltest", "wollten"), ("want", "wants", "wanted"), ("to",), "do"
)
BE_ALLOWED_TO = Modal(
    ("darf", "darfst", "darf"), "dürfen", ("durfte", "durftest", "durften"), ("", "", ""), ("allowed", "to"), "be"
)
SHOULD = Modal(("sollte", "solltest", "sollte"), "sollten", None, ("should", "should", ""), (), "auxiliary")
WOULD_LIKE_TO = Modal(
    ("möchte", "möchtest", "möchte"), "möchten", None, ("would", "would", ""), ("like", "to"), "auxiliary"
)
LIKE_TO = Modal(("", "", ""), "", None, ("like", "likes", ""), ("to",), "do", adverb="gern")
MODALS = (CAN, MUST, HAVE_TO, WANT_TO, BE_ALLOWED_TO, SHOULD, WOULD_LIKE_TO)

ON = Preposition("on", "auf", "dative")
ONTO = Preposition("on", "auf", "accusative")
IN = Preposition("in", "in", "dative")
INTO = Preposition("into", "in", "accusative")
TO_INSIDE = Preposition("to", "in", "accusative")
TO_OPEN = Preposition("to", "auf", "accusative")
TO = Preposition("to", "zu", "dative")
AT_OPEN = Preposition("at", "auf", "dative")
AT_SIDE = Preposition("at", "an", "dative")
AT_INSIDE = Preposition("at", "in", "dative")
WITH = Preposition("with", "mit", "dative")
WITHOUT = Preposition("without", "ohne", "accusative")
FOR = Preposition("for", "für", "accusative")
STAYING_WITH = Preposition("with", "bei", "dative")
# Each two-way preposition: where something is (dative) and where it is put (accusative).
TWO_WAY = {
    "on": (ON, ONTO),
    "in": (IN, INTO),
    "under": (Preposition("under", "unter", "dative"), Preposition("under", "unter", "accusative")),
    "behind": (Preposition("behind", "hinter", "dative"), Preposition("behind", "hinter", "accusative")),
    "next to": (Preposition("next to", "neben", "dative"), Preposition("next to", "neben", "accusative")),
    "in front of": (Preposition("in front of", "vor", "dative"), Preposition("in front of", "vor", "accusative")),
}
LANDMARKS = {
    "on": ("surface", "seat"),
    "in": ("inside",),
    "under": ("table", "seat"),
    "behind": ("building", "furniture"),
    "next to": ("furniture", "corner"),
    "in front of": ("building", "corner"),
}
# How one says that something is at a place and that someone goes there.
PLACE_PREPOSITIONS = {
    "garden": (IN, INTO),
    "kitchen": (IN, INTO),
    "room": (IN, INTO),
    "park": (IN, TO_INSIDE),
    "school": (AT_INSIDE, TO),
    "station": (AT_SIDE, TO),
    "market": (AT_OPEN, TO_OPEN),
    "forest": (IN, INTO),
    "village": (IN, TO_INSIDE),
    "town": (IN, TO_INSIDE),
}
FIXED_PLACES = {
    "home": (Adverb("at home", "zu Hause", "place"), Adverb("home", "nach~Hause", "complement")),
    "here": (Adverb("here", "hier", "place"), Adverb("here", "hier", "complement")),
    "Berlin": (Adverb("in Berlin", "in Berlin", "place"), Adverb("to Berlin", "nach Berlin", "complement")),
    "Hamburg": (Adverb("in Hamburg", "in Hamburg", "place"), Adverb("to Hamburg", "nach Hamburg", "complement")),
}
PLACE_NOUNS = {name: noun(name) for name in PLACE_PREPOSITIONS}


def _time(english: str, german: str) -> Adverb:
    return Adverb(english, german, "time")


NOW = Adverb("now", "jetzt", "time", is_early=True)
TODAY = _time("today", "heute")
EVENING = _time("in~the evening", "am Abend")
MONDAY = _time("on Monday", "am Montag")
FRIDAY = _time("on Friday", "am Freitag")
SOON = _time("soon", "bald")
PRESENT_TIMES = (NOW, TODAY)
PAST_TIMES = (
    _time("yesterday", "gestern"), TODAY, _time("last week", "letzte Woche"), EVENING, MONDAY, FRIDAY,
    _time("yesterday evening", "gestern Abend"),
)  # fmt: skip
FUTURE_TIMES = (
    _time("tomorrow", "morgen"), TODAY, _time("next week", "nächste Woche"), EVENING, MONDAY, FRIDAY,
    SOON, _time("tomorrow evening", "morgen Abend"),
)  # fmt: skip
HABIT_TIMES = (
    _time("every day", "jeden Tag"), _time("every evening", "jeden Abend"), _time("on~Sundays", "sonntags"),
    _time("every week", "jede Woche"),
)  # fmt: skip
ALWAYS = Adverb("always", "immer", "frequency")
NEVER = Adverb("never", "nie", "frequency")
FREQUENCIES = (ALWAYS, NEVER, Adverb("often", "oft", "frequency"), Adverb("sometimes", "manchmal", "frequency"))
CLOCKS = tuple(
    Adverb(english_clock(hour, quarter), german_clock(hour, quarter), "clock")
    for hour in range(1, 13)
    for quarter in range(4)
)
MANNERS = {
    "slowly": Adverb("slowly", "langsam", "manner"),
    "quickly": Adverb("quickly", "schnell", "manner"),
    "quietly": Adverb("quietly", "leise", "manner"),
    "well": Adverb("well", "gut", "manner"),
}
PLEASE = Adverb("please", "bitte", "please")
QUESTION_WORDS: dict[Literal["when", "where", "where to", "why"], Adverb] = {
    "when": Adverb("when", "wann", "time"),
    "where": Adverb("where", "wo", "place"),
    "where to": Adverb("where", "wohin", "complement"),
    "why": Adverb("why", "warum", "reason"),
}

THAT = Conjunction("that", "dass")
WHETHER = Conjunction("whether", "ob")
WHY = Conjunction("why", "warum")
WHEN = Conjunction("when", "wann")
BECAUSE = Conjunction("because", "weil")
IF = Conjunction("if", "wenn")
ALTHOUGH = Conjunction("although", "obwohl")
BEFORE = Conjunction("before", "bevor")
AND = Conjunction("and", "und")
BUT = Conjunction("but", "aber")


def is_deniable(argument: Argument | None) -> bool:
    """Whether a denial changes this phrase (dogs): not any dogs, keine Hunde."""
    return (
        isinstance(argument, NounPhrase)
        and argument.count is None
        and argument.possessor is None
        and argument.determiner in (INDEFINITE, BARE, ANY)
    )


def denies_object(clause: Clause) -> bool:
    """Whether the denial of a clause falls on its object (kein, not any); with gern it never does (nicht gern)."""
    is_gern = clause.modal is not None and bool(clause.modal.adverb)
    return clause.negated and not is_gern and clause.verb.preposition is None and is_deniable(clause.object)
