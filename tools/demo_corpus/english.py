"""English words, phrases and clauses: articles, agreement, do-support, the progressive, and word order."""

from __future__ import annotations

from dataclasses import replace

from .lexicon import ANY, BARE, NEGATIVE, denies_object, is_deniable
from .number_words import english_number
from .structures import (
    Adverb,
    Adverbial,
    Argument,
    Both,
    Clause,
    Existence,
    Infinitive,
    Interrogative,
    Measure,
    Modal,
    Name,
    NounPhrase,
    Predicate,
    Profession,
    Pronoun,
    Quality,
    RelativePronoun,
    Slot,
    Subordinate,
    Verb,
    agreement,
)
from .words import (
    AND,
    COMMA,
    COMPARISON,
    COUNT,
    DETERMINER,
    INFINITIVE,
    NEGATION,
    TENSE,
    THERE,
    Word,
    fuse,
    spell,
    spell_each,
    within,
)

_BE_PAST = {False: "was", True: "were"}
_SUBJECTS = {(1, False): "I", (2, False): "you", (1, True): "we", (3, True): "they"}
_OBJECTS = {(1, False): "me", (2, False): "you", (1, True): "us", (3, True): "them"}
_SINGULAR = {"masculine": ("he", "him"), "feminine": ("she", "her"), "neuter": ("it", "it")}
_VOWELS = "aeiou"
_END: tuple[Slot, ...] = ("complement", "benefit", "companion", "manner", "place", "clock", "time")


def english_clause(clause: Clause) -> list[Word]:
    """Return a main clause: statement, question or command, with the subordinate clauses before and after it."""
    lead = [*_subordinate_words(clause.lead), COMMA] if clause.lead else []
    return [*lead, *_main_words(clause), *_tail_words(clause)]


def english_existence(existence: Existence) -> list[Word]:
    """ "There are two chairs in the kitchen"."""
    theme = _any(existence.theme) if existence.mood == "question" else existence.theme
    if existence.negated and is_deniable(theme):
        theme = replace(theme, determiner=NEGATIVE)
    verb, there = spell(_be(3, theme.plural, existence.tense == "past"), TENSE), spell("there", THERE)
    opening = [*verb, *there] if existence.mood == "question" else [*there, *verb]
    return [*opening, *within(existence.theme, argument_words(theme)), *_adverbial_words(existence.place)]


def argument_words(argument: Argument, subject: bool = False) -> list[Word]:
    """Spell out an argument, as the subject or in another place."""
    if isinstance(argument, NounPhrase):
        return noun_phrase_words(argument)
    if isinstance(argument, Both):
        return [*_argument(argument.first), *spell("and", AND), *_argument(argument.second)]
    return spell(_single_word(argument, subject), argument)


def _single_word(argument: Name | Pronoun | Interrogative | RelativePronoun, subject: bool) -> str:
    if isinstance(argument, Name):
        return argument.text
    if isinstance(argument, Pronoun):
        return _pronoun_word(argument, subject)
    if isinstance(argument, Interrogative):
        return "who" if argument.is_person else "what"
    return "who" if subject and "person" in argument.noun.kinds else "that"


def noun_phrase_words(phrase: NounPhrase) -> list[Word]:
    """Return determiner or possessor, number word, adjectives, noun, and the relative clause."""
    rest = _after_article(phrase)
    if phrase.possessor:
        *others, owner = _argument(phrase.possessor)
        return [*others, fuse(owner.text + "'s", owner), *rest]
    article, following = phrase.determiner.english[phrase.plural], rest[0].text
    if article == "a" and following[0] in _VOWELS and not following.startswith("eu"):
        article = "an"
    return [*spell_each(article, DETERMINER), *rest]


def _after_article(phrase: NounPhrase) -> list[Word]:
    words = spell(english_number(phrase.count), COUNT) if phrase.count else []
    words += [word for adjective in phrase.adjectives for word in spell(adjective.english, adjective)]
    words += spell(phrase.noun.english_plural if phrase.plural else phrase.noun.english, phrase.noun)
    return words + (within(phrase.relative, _main_words(phrase.relative)) if phrase.relative else [])


def _argument(argument: Argument, subject: bool = False) -> list[Word]:
    return within(argument, argument_words(argument, subject))


def _pronoun_word(pronoun: Pronoun, subject: bool) -> str:
    if pronoun.person == 3 and not pronoun.plural:
        is_thing = pronoun.antecedent is not None and "person" not in pronoun.antecedent.kinds
        return _SINGULAR["neuter" if is_thing else pronoun.gender][0 if subject else 1]
    return (_SUBJECTS if subject else _OBJECTS)[pronoun.person, pronoun.plural]


def _any(argument: Argument) -> NounPhrase:
    """Return the same phrase with any where it had no article, as questions and denials say it."""
    assert isinstance(argument, NounPhrase)
    return replace(argument, determiner=ANY) if argument.determiner is BARE and not argument.count else argument


def _be(person: int, plural: bool, past: bool) -> str:
    if past:
        return _BE_PAST[plural or person == 2]
    return "are" if plural or person == 2 else ("am", "", "is")[person - 1]


def third_person(base: str) -> str:
    """Return the form of he, she and it."""
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in _VOWELS:
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")


def present_participle(verb: Verb) -> str:
    """Return the -ing form; doubled and other irregular ones come from the lexicon."""
    return verb.ing or (verb.english.removesuffix("e") if verb.english[-2:] != "ee" else verb.english) + "ing"


def _verb_words(clause: Clause, inverted: bool) -> tuple[list[Word], list[Word]]:
    """Return the auxiliary, if any, and the rest of the verb with not and the frequency adverb in place."""
    auxiliary, rest = _chain(clause, inverted)
    denial = spell("not", NEGATION) if clause.negated else []
    if denial and not inverted and auxiliary and auxiliary[0].text == "can":
        auxiliary, denial = [fuse("cannot", *auxiliary, *denial)], []
    return auxiliary, [*denial, *_slot_words(clause, "frequency"), *rest]


def _chain(clause: Clause, inverted: bool) -> tuple[list[Word], list[Word]]:
    verb, modal, past = clause.verb, clause.modal, clause.tense == "past"
    person, plural = agreement(clause.subject)
    full_verb = spell(verb.english, verb)
    support = inverted or clause.negated
    if modal:
        after = [*spell(" ".join(modal.english_rest), modal), *full_verb]
        if modal.support == "be":
            return spell(_be(person, plural, past), modal, TENSE), after
        if modal.support == "auxiliary":
            return spell(modal.english[2 if past else 0], modal, TENSE), after
        auxiliary, finite = _lexical(modal, modal.english, _column(person, plural, past), support)
        return auxiliary, [*finite, *after]
    if clause.tense == "future":
        return spell("will", TENSE), full_verb
    if verb.english == "be":
        return spell(_be(person, plural, past), verb, TENSE), []
    if clause.progressive:
        return spell(_be(person, plural, past), TENSE), spell(present_participle(verb), verb)
    forms = (verb.english, third_person(verb.english), verb.past)
    return _lexical(verb, forms, _column(person, plural, past), support)


def _column(person: int, plural: bool, past: bool) -> int:
    """Return which form of a full verb agrees with the subject: read, reads, read."""
    return 2 if past else 1 if person == 3 and not plural else 0


def _lexical(
    verb: Verb | Modal, forms: tuple[str, str, str], column: int, support: bool
) -> tuple[list[Word], list[Word]]:
    """Return a full verb in one of its forms, with do where the clause asks or denies."""
    if support:
        return spell(("do", "does", "did")[column], TENSE), spell(forms[0], verb)
    tense = () if isinstance(verb, Modal) and verb.adverb else (TENSE,)  # gern has none; the German full verb does
    return [], spell(forms[column], verb, *tense)


def _main_words(clause: Clause) -> list[Word]:
    if clause.mood == "command":
        denial = [*spell("do", TENSE), *spell("not", NEGATION)] if clause.negated else []
        please, verb = _slot_words(clause, "please"), spell(clause.verb.english, clause.verb)
        return [*please, *denial, *verb, *_complement_words(clause)]
    inverted = clause.mood == "question" and clause.front != "subject"
    auxiliary, rest = _verb_words(clause, inverted)
    front = _front_words(clause)
    subject = _argument(clause.subject, subject=True)
    opening = [*auxiliary, *subject] if inverted else [*subject, *auxiliary]
    return [*front, *opening, *rest, *_complement_words(clause)]


def _front_words(clause: Clause) -> list[Word]:
    if clause.lead or clause.front in ("subject", "nothing"):
        return []
    if clause.front == "object" and clause.object is not None:
        return _argument(clause.object)
    if clause.front == "recipient" and clause.recipient is not None:
        return _argument(clause.recipient)
    return _slot_words(clause, clause.front)


def _complement_words(clause: Clause) -> list[Word]:
    """Return everything after the verb: objects, predicate and adverbials, without the fronted part."""
    predicate = within(clause.predicate, _predicate_words(clause.predicate)) if clause.predicate else []
    slots = [slot for slot in _END if clause.lead or slot != clause.front]
    return [*_object_words(clause), *predicate, *(word for slot in slots for word in _slot_words(clause, slot))]


def _object_words(clause: Clause) -> list[Word]:
    theme, particle = _theme_words(clause), spell(clause.verb.particle, clause.verb)
    theme = [*theme, *particle] if isinstance(clause.object, Pronoun) else [*particle, *theme]
    if clause.recipient is None:
        return theme
    recipient = [] if clause.front == "recipient" else _argument(clause.recipient)
    return [*theme, *spell("to"), *recipient] if clause.recipient_last else [*recipient, *theme]


def _theme_words(clause: Clause) -> list[Word]:
    preposition = spell(clause.verb.english_preposition, clause.verb.preposition or clause.verb)
    if clause.object is None or clause.front == "object":
        return preposition
    theme = _any(clause.object) if denies_object(clause) else clause.object
    return [*preposition, *within(clause.object, argument_words(theme))]


def _predicate_words(predicate: Predicate) -> list[Word]:
    if isinstance(predicate, Measure):
        unit = predicate.unit.english if predicate.number == 1 else predicate.unit.english_plural
        number, adjective = english_number(predicate.number), predicate.adjective
        return [*spell(number, COUNT), *spell(unit, predicate.unit), *spell(adjective.english, adjective)]
    if isinstance(predicate, Profession):
        return [*spell_each("a", DETERMINER), *spell(predicate.noun.english, predicate.noun)]
    return _quality_words(predicate)


def _quality_words(quality: Quality) -> list[Word]:
    adjective = quality.adjective
    if quality.standard is None:
        return spell(adjective.english, adjective)
    other = _argument(quality.standard)
    if quality.degree == "equal":
        comparison = spell("as", COMPARISON)
        return [*comparison, *spell(adjective.english, adjective), *comparison, *other]
    return [*spell(adjective.english_comparative, adjective), *spell("than", COMPARISON), *other]


def _slot_words(clause: Clause, slot: str) -> list[Word]:
    return [word for adverbial in clause.adverbials_in(slot) for word in _adverbial_words(adverbial)]


def _adverbial_words(adverbial: Adverbial) -> list[Word]:
    if isinstance(adverbial, Adverb):
        return spell_each(adverbial.english, adverbial)
    preposition = spell(adverbial.preposition.english, adverbial.preposition)
    return within(adverbial, [*preposition, *_argument(adverbial.argument)])


def _tail_words(clause: Clause) -> list[Word]:
    if clause.tail is None:
        return []
    if isinstance(clause.tail, Infinitive):
        inner = clause.tail.clause
        words = [*spell("to", INFINITIVE), *spell(inner.verb.english, inner.verb), *_complement_words(inner)]
        return within(clause.tail, words)
    return _subordinate_words(clause.tail)


def _subordinate_words(subordinate: Subordinate) -> list[Word]:
    clause, conjunction = subordinate.clause, subordinate.conjunction
    words = [*spell(conjunction.english, conjunction), *_main_words(clause), *_tail_words(clause)]
    return within(subordinate, words)
