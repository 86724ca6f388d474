"""German words and phrases: articles, adjective endings, nouns, pronouns, verb forms and prepositions."""

from __future__ import annotations

from typing import Literal

from .lexicon import DEFINITE, NEGATIVE, is_deniable
from .number_words import german_number
from .structures import (
    Adjective,
    Argument,
    Both,
    Case,
    Determiner,
    Gender,
    Interrogative,
    Modal,
    Name,
    Noun,
    NounPhrase,
    Preposition,
    Pronoun,
    RelativePronoun,
    Verb,
)
from .words import AND, COUNT, DETERMINER, INFINITIVE, Word, fuse, spell, spell_each, within

Declension = Literal["weak", "mixed", "strong"]
Form = Literal["masculine", "feminine", "neuter", "plural"]
_FORMS: tuple[Form, ...] = ("masculine", "feminine", "neuter", "plural")


def _table(nominative: str, accusative: str, dative: str, genitive: str) -> dict[tuple[Case, Form], str]:
    """One row of four endings for each case, in the order masculine, feminine, neuter, plural; - is no ending."""
    rows: tuple[tuple[Case, str], ...] = (
        ("nominative", nominative),
        ("accusative", accusative),
        ("dative", dative),
        ("genitive", genitive),
    )
    return {
        (case, form): ending.strip("-") for case, row in rows for form, ending in zip(_FORMS, row.split(), strict=True)
    }


_DEFINITE_ARTICLE = _table("der die das die", "den die das die", "dem der dem den", "des der des der")
_DER_ENDINGS = _table("er e es e", "en e es e", "em er em en", "es er es er")
_EIN_ENDINGS = _table("- e - e", "en e - e", "em er em en", "es er es er")
_ADJECTIVE_ENDINGS: dict[Declension, dict[tuple[Case, Form], str]] = {
    "weak": _table("e e e en", "en e e en", "en en en en", "en en en en"),
    "mixed": _table("er e es en", "en e es en", "en en en en", "en en en en"),
    "strong": _table("er e es e", "en e es e", "em er em en", "en er en er"),
}
_DECLENSIONS: dict[str, Declension] = {
    "definite": "weak",
    "der": "weak",
    "ein": "mixed",
    "plural": "strong",
    "none": "strong",
}
_RELATIVE_PRONOUN = _table("der die das die", "den die das die", "dem der dem denen", "dessen deren dessen deren")
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("bei", "dem"): "beim",
}
_PRONOUNS: dict[tuple[int, Form], tuple[str, str, str]] = {
    (1, "neuter"): ("ich", "mich", "mir"),
    (2, "neuter"): ("du", "dich", "dir"),
    (3, "masculine"): ("er", "ihn", "ihm"),
    (3, "feminine"): ("sie", "sie", "ihr"),
    (3, "neuter"): ("es", "es", "ihm"),
    (1, "plural"): ("wir", "uns", "uns"),
    (3, "plural"): ("sie", "sie", "ihnen"),
}
_WHO = {"nominative": "wer", "accusative": "wen", "dative": "wem"}


def form_of(gender: Gender, plural: bool) -> Form:
    """Return the column of a table of endings: the gender, or plural for all genders alike."""
    return "plural" if plural else gender


def determiner_word(determiner: Determiner, case: Case, form: Form) -> str:
    """Return the determiner with its ending ("dem", "meinen", "diese"); empty where there is none."""
    if determiner.pattern == "definite":
        return _DEFINITE_ARTICLE[case, form]
    if determiner.pattern == "none":
        return ""
    endings = _EIN_ENDINGS if determiner.pattern == "ein" else _DER_ENDINGS
    return determiner.stem + endings[case, form]


def declension_after(determiner: Determiner) -> Declension:
    """Which adjective endings follow a determiner."""
    return _DECLENSIONS[determiner.pattern]


def adjective_word(adjective: Adjective, declension: Declension, case: Case, form: Form) -> str:
    """Return an attributive adjective with its ending ("teures", "dunklen")."""
    return adjective.stem + _ADJECTIVE_ENDINGS[declension][case, form]


def noun_word(noun: Noun, case: Case, plural: bool) -> str:
    """Return a noun in its case; the dative plural ends in -n except after -n and -s."""
    if plural:
        return noun.plural + ("n" if case == "dative" and noun.plural[-1] not in "ns" else "")
    if case == "genitive":
        return noun.genitive
    return noun.german if case == "nominative" else noun.oblique or noun.german


def pronoun_word(pronoun: Pronoun, case: Case) -> str:
    """Return a personal pronoun in its case."""
    form = form_of(pronoun.gender, pronoun.plural)
    return _PRONOUNS[pronoun.person, form][("nominative", "accusative", "dative").index(case)]


def argument_words(argument: Argument, case: Case) -> list[Word]:
    """Spell out an argument of a clause in its case; a relative clause of it is left to `german_clauses`."""
    if isinstance(argument, NounPhrase):
        return noun_phrase_words(argument, case)
    if isinstance(argument, Both):
        first, second = (within(part, argument_words(part, case)) for part in (argument.first, argument.second))
        return [*first, *spell("und", AND), *second]
    return spell(_single_word(argument, case), argument)


def _single_word(argument: Name | Pronoun | Interrogative | RelativePronoun, case: Case) -> str:
    if isinstance(argument, Name):
        return argument.text
    if isinstance(argument, Pronoun):
        return pronoun_word(argument, case)
    if isinstance(argument, RelativePronoun):
        return _RELATIVE_PRONOUN[case, form_of(argument.noun.gender, argument.plural)]
    return _WHO[case] if argument.is_person else "was"


def noun_phrase_words(phrase: NounPhrase, case: Case) -> list[Word]:
    """Return determiner, number word, adjectives and noun, and a genitive after it (or a name's in front)."""
    form = form_of(phrase.noun.gender, phrase.plural)
    declension = declension_after(phrase.determiner)
    words = spell_each(determiner_word(phrase.determiner, case, form), DETERMINER)
    if isinstance(phrase.possessor, Name):
        owner, declension = spell(phrase.possessor.text + "s", phrase.possessor), "strong"
        words = within(phrase.possessor, owner)
    words += spell(german_number(phrase.count), COUNT) if phrase.count else []
    for adjective in phrase.adjectives:
        words += spell(adjective_word(adjective, declension, case, form), adjective)
    words += spell(noun_word(phrase.noun, case, phrase.plural), phrase.noun)
    if isinstance(phrase.possessor, NounPhrase):
        words += within(phrase.possessor, noun_phrase_words(phrase.possessor, "genitive"))
    return words


def prepositional_words(preposition: Preposition, argument: Argument) -> list[Word]:
    """Return a preposition with its argument, run together with the bare article where German does (im, zur)."""
    first, *others = within(argument, argument_words(argument, preposition.case))
    long = spell(preposition.german, preposition)
    has_article = isinstance(argument, NounPhrase) and argument.determiner is DEFINITE
    short = _CONTRACTIONS.get((preposition.german, first.text)) if has_article else None
    return [fuse(short, *long, first), *others] if short else [*long, first, *others]


def negative(argument: Argument) -> Argument:
    """Negate an indefinite phrase: kein instead of ein or of no article; anything else as it is."""
    if not is_deniable(argument):
        return argument
    assert isinstance(argument, NounPhrase)
    return NounPhrase(argument.noun, NEGATIVE, argument.plural, argument.adjectives)


def is_definite(argument: Argument) -> bool:
    """Whether an argument stands early in the middle of the clause, as known things do."""
    if isinstance(argument, NounPhrase):
        return argument.determiner.is_definite or argument.possessor is not None
    return True


def finite_verb(verb: Verb, person: int, plural: bool) -> str:
    """Return the present form of a verb without its separable prefix."""
    if verb.infinitive == "sein" and plural:
        return "sind"
    if plural:
        return base_infinitive(verb)
    return (verb.singular or _regular_singular(verb))[person - 1]


def preterite_verb(forms: tuple[str, str, str], person: int, plural: bool) -> str:
    """Return a preterite out of its forms for ich and er, for du, and for the plural."""
    return forms[2] if plural else forms[1] if person == 2 else forms[0]


def finite_modal(modal: Modal, person: int, plural: bool) -> str:
    """Return the present form of a modal verb."""
    return modal.plural if plural else modal.singular[person - 1]


def base_infinitive(verb: Verb) -> str:
    """Return the infinitive without the separable prefix."""
    return verb.infinitive.removeprefix(verb.prefix)


def zu_infinitive(verb: Verb) -> list[Word]:
    """Return the infinitive with zu, which stands inside a separable verb (aufzumachen)."""
    if verb.prefix:
        return spell(f"{verb.prefix}zu{base_infinitive(verb)}", verb, INFINITIVE)
    return [*spell("zu", INFINITIVE), *spell(verb.infinitive, verb)]


def imperative_verb(verb: Verb) -> str:
    """Return the imperative for du: the stem, with -e after t and d."""
    stem = base_infinitive(verb).removesuffix("en")
    return verb.imperative or stem + ("e" if stem[-1] in "td" else "")


def _regular_singular(verb: Verb) -> tuple[str, str, str]:
    """From er liest: ich lese, du liest; after s and z the -s of -st is lost."""
    root = verb.third.removesuffix("t")
    second = root + ("t" if root[-1] in "szß" else "st")
    return base_infinitive(verb).removesuffix("en") + "e", second, verb.third
