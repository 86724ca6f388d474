"""What the two languages share: the entries of the lexicon and the abstract structures of sentences.

A sentence is drawn once as a structure (`Sentence`), and `english.py` and `german.py` each spell out that one
structure. No structure holds anything of one language's word order or agreement; the lexical entries hold the
forms of both languages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Case = Literal["nominative", "accusative", "dative", "genitive"]
Gender = Literal["masculine", "feminine", "neuter"]
Tense = Literal["present", "past", "future"]
Mood = Literal["statement", "question", "command"]
Slot = Literal[
    "time", "clock", "frequency", "manner", "companion", "place", "benefit", "complement", "reason", "please"
]
Front = Literal["subject", "object", "recipient", "nothing", "time", "clock", "place", "reason", "complement"]


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages; `oblique` is the singular form of a weak noun outside the nominative (den Jungen)."""

    german: str
    gender: Gender
    plural: str
    genitive: str
    english: str
    english_plural: str
    kinds: frozenset[str]
    oblique: str = ""


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; `stem` takes the endings (teuer: teur-), `rank` is its place in a row of adjectives."""

    german: str
    english: str
    kinds: frozenset[str]
    rank: int
    stem: str
    german_comparative: str = ""
    english_comparative: str = ""


@dataclass(frozen=True, eq=False)
class Determiner:
    """`pattern` names the German endings: der-words, ein-words, none; `english` has singular and plural."""

    stem: str
    pattern: Literal["definite", "der", "ein", "plural", "none"]
    english: tuple[str, str]
    is_definite: bool = True


@dataclass(frozen=True, eq=False)
class Preposition:
    """A preposition in one fixed meaning, with the case it governs in German in that meaning."""

    english: str
    german: str
    case: Case


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages with its frame: who does it (`subjects`) to what (`objects`), as kinds of nouns.

    `infinitive` is the whole word (aufmachen), `third` the finite form without the prefix (macht), `singular` the
    forms for ich, du and er where the rules do not give them. `swaps` marks gefallen, whose German subject is the
    English object.
    """

    infinitive: str
    third: str
    participle: str
    english: str
    past: str
    subjects: tuple[str, ...] = ("person",)
    objects: tuple[str, ...] = ()
    case: Case = "accusative"
    preposition: Preposition | None = None
    prefix: str = ""
    auxiliary: Literal["haben", "sein"] = "haben"
    imperative: str = ""
    singular: tuple[str, str, str] | None = None
    preterite: tuple[str, str, str] | None = None
    ing: str = ""
    particle: str = ""
    english_preposition: str = ""
    recipient: bool = False
    swaps: bool = False
    stative: bool = False
    momentary: bool = False
    repeatable: bool = False
    enjoyable: bool = False
    timed: bool = False
    modal: bool = True
    tenses: tuple[Tense, ...] = ("present", "past", "future")
    places: tuple[str, ...] = ()
    manners: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb; gern (to like to) is a German `adverb`. `english_rest` stands before the infinitive."""

    singular: tuple[str, str, str]
    plural: str
    preterite: tuple[str, str, str] | None
    english: tuple[str, str, str]
    english_rest: tuple[str, ...]
    support: Literal["auxiliary", "be", "do"]
    adverb: str = ""


@dataclass(frozen=True, eq=False)
class Adverb:
    """A fixed adverbial for one slot; an early one (jetzt) goes before definite objects in German."""

    english: str
    german: str
    slot: Slot
    is_early: bool = False


@dataclass(frozen=True, eq=False)
class Conjunction:
    """A word that joins two clauses."""

    english: str
    german: str


@dataclass(frozen=True, eq=False)
class Name:
    """A person's first name."""

    text: str
    gender: Gender


@dataclass(frozen=True, eq=False)
class Pronoun:
    """A personal pronoun: German shows its `gender`, English says "it" of an `antecedent` that is no person."""

    person: Literal[1, 2, 3]
    plural: bool
    gender: Gender = "neuter"
    antecedent: Noun | None = None


@dataclass(frozen=True, eq=False)
class Interrogative:
    """The question word who or what."""

    is_person: bool


@dataclass(frozen=True, eq=False)
class RelativePronoun:
    """The gap of a relative clause; it agrees with the noun that the clause describes."""

    noun: Noun
    plural: bool


@dataclass(frozen=True, eq=False)
class NounPhrase:
    """A noun with all that stands around it; `relative` is a clause with a `RelativePronoun` in its fronted place."""

    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    count: int | None = None
    possessor: NounPhrase | Name | None = None
    relative: Clause | None = None


@dataclass(frozen=True, eq=False)
class Both:
    """Two arguments joined by and."""

    first: NounPhrase | Name
    second: NounPhrase | Name


Argument = NounPhrase | Name | Pronoun | Interrogative | RelativePronoun | Both


@dataclass(frozen=True, eq=False)
class PrepositionalPhrase:
    """A preposition with its argument in a slot of the clause."""

    preposition: Preposition
    argument: Argument
    slot: Slot


Adverbial = Adverb | PrepositionalPhrase


@dataclass(frozen=True, eq=False)
class Quality:
    """The predicate "old", "older than the house" (comparative) or "as old as the house" (equal)."""

    adjective: Adjective
    degree: Literal["positive", "comparative", "equal"] = "positive"
    standard: NounPhrase | None = None


@dataclass(frozen=True, eq=False)
class Profession:
    """The predicate "a teacher"; German has no article there (Er ist Lehrer), but says kein when it is denied."""

    noun: Noun


@dataclass(frozen=True, eq=False)
class Measure:
    """The predicate "forty years old"."""

    number: int
    unit: Noun
    adjective: Adjective


Predicate = Quality | Profession | Measure


@dataclass(frozen=True, eq=False)
class Subordinate:
    """A clause after a conjunction, with the verb at its end in German."""

    conjunction: Conjunction
    clause: Clause


@dataclass(frozen=True, eq=False)
class Infinitive:
    """An infinitive clause with zu; `purpose` makes it um … zu. Its subject is that of the clause it hangs on."""

    clause: Clause
    purpose: bool = False


@dataclass(frozen=True, eq=False)
class Clause:
    """One clause. The verb says which case its `object` takes; `front` names what stands before the finite verb.

    `progressive` only English shows ("is reading"), `recipient_last` too ("gives the book to her"). `lead` is a
    subordinate clause before the main clause, `tail` one after it.
    """

    subject: Argument
    verb: Verb
    tense: Tense = "present"
    progressive: bool = False
    modal: Modal | None = None
    negated: bool = False
    object: Argument | None = None
    recipient: Argument | None = None
    recipient_last: bool = False
    predicate: Predicate | None = None
    adverbials: tuple[Adverbial, ...] = ()
    mood: Mood = "statement"
    front: Front = "subject"
    lead: Subordinate | None = None
    tail: Subordinate | Infinitive | None = None

    def adverbials_in(self, slot: str) -> tuple[Adverbial, ...]:
        """Return the adverbials that fill a slot."""
        return tuple(adverbial for adverbial in self.adverbials if adverbial.slot == slot)


@dataclass(frozen=True, eq=False)
class Existence:
    """ "There are two chairs in the kitchen": in der Küche gibt es zwei Stühle."""

    theme: NounPhrase
    place: PrepositionalPhrase
    tense: Tense = "present"
    negated: bool = False
    mood: Mood = "statement"


@dataclass(frozen=True, eq=False)
class Sentence:
    """A whole sentence; `second` is a further main clause after `conjunction`. `frame` names the kind of sentence."""

    frame: str
    clause: Clause | Existence
    conjunction: Conjunction | None = None
    second: Clause | None = None


def agreement(subject: Argument) -> tuple[int, bool]:
    """Return the person and whether it is plural, which the finite verb agrees with in both languages."""
    if isinstance(subject, Pronoun):
        return subject.person, subject.plural
    if isinstance(subject, (NounPhrase, RelativePronoun)):
        return 3, subject.plural
    return 3, isinstance(subject, Both)


def noun_of(argument: Argument | None) -> Noun | None:
    """Return the noun that an argument is about, also where only a pronoun stands for it."""
    if isinstance(argument, (NounPhrase, RelativePronoun)):
        return argument.noun
    return argument.antecedent if isinstance(argument, Pronoun) else None
