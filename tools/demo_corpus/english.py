"""English words, phrases and clauses: articles, agreement, do-support, the progressive, and word order."""

from __future__ import annotations

from dataclasses import replace

from .lexicon import ANY, BARE, denies_object, is_deniable
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
    Name,
    NounPhrase,
    Predicate,
    Profession,
    Pronoun,
    Quality,
    Slot,
    Subordinate,
    Verb,
    agreement,
)

_BE_PAST = {False: "was", True: "were"}
_SUBJECTS = {(1, False): "I", (2, False): "you", (1, True): "we", (3, True): "they"}
_OBJECTS = {(1, False): "me", (2, False): "you", (1, True): "us", (3, True): "them"}
_SINGULAR = {"masculine": ("he", "him"), "feminine": ("she", "her"), "neuter": ("it", "it")}
_VOWELS = "aeiou"
_END: tuple[Slot, ...] = ("complement", "benefit", "companion", "manner", "place", "clock", "time")


def english_clause(clause: Clause) -> list[str]:
    """Return a main clause: statement, question or command, with the subordinate clauses before and after it."""
    lead = [*_subordinate_words(clause.lead), ","] if clause.lead else []
    return [*lead, *_main_words(clause), *_tail_words(clause)]


def english_existence(existence: Existence) -> list[str]:
    """ "There are two chairs in the kitchen"."""
    theme = _any(existence.theme) if existence.mood == "question" else existence.theme
    denied = existence.negated and is_deniable(theme)
    words = ["no", *_after_article(theme)] if denied else argument_words(theme)
    verb = _be(3, theme.plural, existence.tense == "past")
    opening = [verb, "there"] if existence.mood == "question" else ["there", verb]
    return [*opening, *words, *_adverbial_words(existence.place)]


def argument_words(argument: Argument, subject: bool = False) -> list[str]:
    """Spell out an argument, as the subject or in another place."""
    if isinstance(argument, NounPhrase):
        return noun_phrase_words(argument)
    if isinstance(argument, Both):
        return [*argument_words(argument.first), "and", *argument_words(argument.second)]
    if isinstance(argument, Name):
        return [argument.text]
    if isinstance(argument, Pronoun):
        return [_pronoun_word(argument, subject)]
    if isinstance(argument, Interrogative):
        return ["who" if argument.is_person else "what"]
    return ["who" if subject and "person" in argument.noun.kinds else "that"]


def noun_phrase_words(phrase: NounPhrase) -> list[str]:
    """Return determiner or possessor, number word, adjectives, noun, and the relative clause."""
    rest = _after_article(phrase)
    if phrase.possessor:
        owner = argument_words(phrase.possessor)
        return [*owner[:-1], owner[-1] + "'s", *rest]
    article = phrase.determiner.english[phrase.plural]
    if article == "a" and rest[0][0] in _VOWELS and not rest[0].startswith("eu"):
        article = "an"
    return [article, *rest] if article else rest


def _after_article(phrase: NounPhrase) -> list[str]:
    words = [english_number(phrase.count)] if phrase.count else []
    words += [adjective.english for adjective in phrase.adjectives]
    words.append(phrase.noun.english_plural if phrase.plural else phrase.noun.english)
    return words + (_main_words(phrase.relative) if phrase.relative else [])


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


def _verb_words(clause: Clause, inverted: bool) -> tuple[str, list[str]]:
    """Return the auxiliary ("" for none) and the rest of the verb with not and the frequency adverb in place."""
    auxiliary, rest = _chain(clause, inverted)
    denial = ["not"] if clause.negated else []
    if auxiliary == "can" and denial and not inverted:
        auxiliary, denial = "cannot", []
    return auxiliary, [*denial, *_slot_words(clause, "frequency"), *rest]


def _chain(clause: Clause, inverted: bool) -> tuple[str, list[str]]:
    verb, modal, past = clause.verb, clause.modal, clause.tense == "past"
    person, plural = agreement(clause.subject)
    if modal and modal.support == "be":
        return _be(person, plural, past), [*modal.english_rest, verb.english]
    if modal and modal.support == "auxiliary":
        return modal.english[2 if past else 0], [*modal.english_rest, verb.english]
    if clause.tense == "future":
        return "will", [verb.english]
    if modal:
        forms, rest = modal.english, [*modal.english_rest, verb.english]
    elif verb.english == "be":
        return _be(person, plural, past), []
    elif clause.progressive:
        return _be(person, plural, past), [present_participle(verb)]
    else:
        forms, rest = (verb.english, third_person(verb.english), verb.past), []
    return _lexical(forms, rest, third=person == 3 and not plural, past=past, support=inverted or clause.negated)


def _lexical(
    forms: tuple[str, str, str], rest: list[str], *, third: bool, past: bool, support: bool
) -> tuple[str, list[str]]:
    """Return a full verb out of its forms (read, reads, read), with do where the clause asks or denies."""
    if support:
        return "did" if past else "does" if third else "do", [forms[0], *rest]
    return "", [forms[2] if past else forms[1] if third else forms[0], *rest]


def _main_words(clause: Clause) -> list[str]:
    if clause.mood == "command":
        denial = ["do", "not"] if clause.negated else []
        return [*_slot_words(clause, "please"), *denial, clause.verb.english, *_complement_words(clause)]
    inverted = clause.mood == "question" and clause.front != "subject"
    auxiliary, rest = _verb_words(clause, inverted)
    front = _front_words(clause)
    subject = argument_words(clause.subject, subject=True)
    opening = [auxiliary, *subject] if inverted else [*subject, auxiliary]
    return [*front, *opening, *rest, *_complement_words(clause)]


def _front_words(clause: Clause) -> list[str]:
    if clause.lead or clause.front in ("subject", "nothing"):
        return []
    if clause.front == "object" and clause.object is not None:
        return argument_words(clause.object)
    if clause.front == "recipient" and clause.recipient is not None:
        return argument_words(clause.recipient)
    return _slot_words(clause, clause.front)


def _complement_words(clause: Clause) -> list[str]:
    """Return everything after the verb: objects, predicate and adverbials, without the fronted part."""
    words = _object_words(clause) + (_predicate_words(clause.predicate) if clause.predicate else [])
    slots = [slot for slot in _END if clause.lead or slot != clause.front]
    return words + [word for slot in slots for word in _slot_words(clause, slot)]


def _object_words(clause: Clause) -> list[str]:
    theme, particle = _theme_words(clause), [clause.verb.particle]
    theme = [*theme, *particle] if isinstance(clause.object, Pronoun) else [*particle, *theme]
    if clause.recipient is None:
        return theme
    recipient = [] if clause.front == "recipient" else argument_words(clause.recipient)
    return [*theme, "to", *recipient] if clause.recipient_last else [*recipient, *theme]


def _theme_words(clause: Clause) -> list[str]:
    preposition = [clause.verb.english_preposition]
    if clause.object is None or clause.front == "object":
        return preposition
    return [*preposition, *argument_words(_any(clause.object) if denies_object(clause) else clause.object)]


def _predicate_words(predicate: Predicate) -> list[str]:
    if isinstance(predicate, Measure):
        unit = predicate.unit.english if predicate.number == 1 else predicate.unit.english_plural
        return [english_number(predicate.number), unit, predicate.adjective.english]
    if isinstance(predicate, Profession):
        return ["a", predicate.noun.english]
    return _quality_words(predicate)


def _quality_words(quality: Quality) -> list[str]:
    if quality.standard is None:
        return [quality.adjective.english]
    other = argument_words(quality.standard)
    if quality.degree == "equal":
        return ["as", quality.adjective.english, "as", *other]
    return [quality.adjective.english_comparative, "than", *other]


def _slot_words(clause: Clause, slot: str) -> list[str]:
    return [word for adverbial in clause.adverbials_in(slot) for word in _adverbial_words(adverbial)]


def _adverbial_words(adverbial: Adverbial) -> list[str]:
    if isinstance(adverbial, Adverb):
        return [adverbial.english]
    return [adverbial.preposition.english, *argument_words(adverbial.argument)]


def _tail_words(clause: Clause) -> list[str]:
    if clause.tail is None:
        return []
    if isinstance(clause.tail, Infinitive):
        return ["to", clause.tail.clause.verb.english, *_complement_words(clause.tail.clause)]
    return _subordinate_words(clause.tail)


def _subordinate_words(subordinate: Subordinate) -> list[str]:
    return [subordinate.conjunction.english, *_main_words(subordinate.clause), *_tail_words(subordinate.clause)]
