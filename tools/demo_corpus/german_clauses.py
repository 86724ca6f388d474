"""German word order: verb second, verb first and verb final, the verbal bracket, and the order inside it.

Between the finite verb and the end of the clause stand, in this order: subject, pronouns, bitte, definite objects,
time, nicht, manner, companion, place, indefinite objects, and what belongs closest to the verb (prepositional
object, goal, predicate).
"""

from __future__ import annotations

from dataclasses import replace

from .german import (
    argument_words,
    finite_modal,
    finite_verb,
    imperative_verb,
    is_definite,
    negative,
    noun_word,
    prepositional_words,
    preterite_verb,
    zu_infinitive,
)
from .lexicon import denies_object
from .number_words import german_number
from .structures import (
    Adverb,
    Adverbial,
    Argument,
    Case,
    Clause,
    Existence,
    Infinitive,
    Measure,
    NounPhrase,
    Predicate,
    Profession,
    Pronoun,
    Quality,
    Slot,
    Subordinate,
    agreement,
)

_WERDEN = ("werde", "wirst", "wird")
_AUXILIARIES = {"haben": ("habe", "hast", "hat"), "sein": ("bin", "bist", "ist")}
_EARLY: tuple[Slot, ...] = ("time", "clock", "frequency", "reason")
_LATE: tuple[Slot, ...] = ("manner", "companion", "place")


def german_clause(clause: Clause) -> list[str]:
    """Return a main clause: the fronted part, the finite verb, the middle, the rest of the verb, and the tail."""
    clause = _swapped(clause)
    finite, final = _verb_parts(clause)
    words = [*_lead_words(clause), *_front_words(clause), *finite, *_middle_words(clause), *final]
    return words + _tail_words(clause)


def german_existence(existence: Existence) -> list[str]:
    """ "In der Küche gibt es zwei Stühle": the place in front, what there is in the accusative."""
    theme = negative(existence.theme) if existence.negated else existence.theme
    verb = "gab" if existence.tense == "past" else "gibt"
    place, words = _adverbial_words(existence.place), _with_relative(theme, argument_words(theme, "accusative"))
    if existence.mood == "question":
        return [verb, "es", *place, *words]
    return [*place, verb, "es", *words]


def _verb_final(clause: Clause) -> list[str]:
    """Return a clause without its conjunction: middle, then the verbs with the finite one last."""
    clause = _swapped(clause)
    finite, final = _verb_parts(clause)
    if final and final[-1] == clause.verb.prefix:
        final, finite = final[:-1], [final[-1] + finite[0]]
    return [*_middle_words(clause), *final, *finite, *_tail_words(clause)]


def _swapped(clause: Clause) -> Clause:
    """Gefallen turns the clause round: the person who likes is in the dative, the liked thing is the subject."""
    if not clause.verb.swaps or clause.object is None:
        return clause
    return replace(clause, subject=clause.object, object=clause.subject)


def _verb_parts(clause: Clause) -> tuple[list[str], list[str]]:
    """Return the finite verb, and the words that close the clause."""
    verb, (person, plural) = clause.verb, agreement(clause.subject)
    if clause.mood == "command":
        return [imperative_verb(verb)], _prefix(clause)
    if clause.modal and not clause.modal.adverb:
        preterite = clause.modal.preterite if clause.tense == "past" else None
        modal = preterite_verb(preterite, person, plural) if preterite else finite_modal(clause.modal, person, plural)
        return [modal], [verb.infinitive]
    if clause.tense == "future":
        return ["werden" if plural else _WERDEN[person - 1]], [verb.infinitive]
    if clause.tense == "past" and verb.preterite:
        return [preterite_verb(verb.preterite, person, plural)], []
    if clause.tense == "past":
        return [_auxiliary(verb.auxiliary, person, plural)], [verb.participle]
    return [finite_verb(verb, person, plural)], _prefix(clause)


def _auxiliary(auxiliary: str, person: int, plural: bool) -> str:
    if plural:
        return "haben" if auxiliary == "haben" else "sind"
    return _AUXILIARIES[auxiliary][person - 1]


def _prefix(clause: Clause) -> list[str]:
    return [clause.verb.prefix] if clause.verb.prefix else []


def _front_words(clause: Clause) -> list[str]:
    if clause.lead or clause.mood == "command" or clause.front == "nothing":
        return []
    if clause.front == "subject":
        return _argument(clause.subject, "nominative")
    if clause.front == "object" and clause.object is not None:
        return _object_words(clause, clause.object)
    if clause.front == "recipient" and clause.recipient is not None:
        return _argument(clause.recipient, "dative")
    return _slot_words(clause, clause.front)


def _middle_words(clause: Clause) -> list[str]:
    words = _subject_and_pronouns(clause) + _slot_words(clause, "please")
    objects, times = _noun_objects(clause, definite=True), _time_words(clause)
    words += [*times, *objects] if _has_early_time(clause) else [*objects, *times]
    words += ["nicht"] if clause.negated and not _says_kein(clause) else []
    words += [clause.modal.adverb] if clause.modal and clause.modal.adverb else []
    words += [word for slot in _LATE if not _is_fronted(clause, slot) for word in _slot_words(clause, slot)]
    words += _noun_objects(clause, definite=False) + _slot_words(clause, "benefit") + _prepositional_object(clause)
    words += [] if _is_fronted(clause, "complement") else _slot_words(clause, "complement")
    return words + (_predicate_words(clause.predicate, clause.negated) if clause.predicate else [])


def _subject_and_pronouns(clause: Clause) -> list[str]:
    """Put the subject first; with "gefallen" a noun follows the pronoun (Gefällt dir der Film?)."""
    subject = [] if _is_fronted(clause, "subject") else _argument(clause.subject, "nominative")
    pronouns = _pronoun_words(clause)
    return (
        [*pronouns, *subject]
        if clause.verb.swaps and not isinstance(clause.subject, Pronoun)
        else [*subject, *pronouns]
    )


def _time_words(clause: Clause) -> list[str]:
    return [word for slot in _EARLY if not _is_fronted(clause, slot) for word in _slot_words(clause, slot)]


def _has_early_time(clause: Clause) -> bool:
    """Jetzt stands before definite objects, except with nicht, which it then stands next to (das Buch jetzt nicht)."""
    return not clause.negated and any(
        isinstance(adverbial, Adverb) and adverbial.is_early for adverbial in clause.adverbials_in("time")
    )


def _is_fronted(clause: Clause, part: str) -> bool:
    """Whether a part stands before the finite verb (or, the subject of a command or an infinitive, nowhere)."""
    return clause.front == part and clause.lead is None


def _objects(clause: Clause) -> list[tuple[Argument, Case]]:
    """Return the objects without preposition that stand in the middle, in the order of noun phrases: dative first."""
    objects: list[tuple[Argument, Case]] = []
    if clause.recipient is not None and not _is_fronted(clause, "recipient"):
        objects.append((clause.recipient, "dative"))
    if clause.object is not None and not clause.verb.preposition and not _is_fronted(clause, "object"):
        objects.append((clause.object, clause.verb.case))
    return objects


def _pronoun_words(clause: Clause) -> list[str]:
    """Pronouns stand first of all objects, and the accusative before the dative."""
    pronouns = [pair for pair in _objects(clause) if isinstance(pair[0], Pronoun)]
    return [word for argument, case in reversed(pronouns) for word in argument_words(argument, case)]


def _noun_objects(clause: Clause, definite: bool) -> list[str]:
    nouns = [
        pair for pair in _objects(clause) if not isinstance(pair[0], Pronoun) and is_definite(pair[0]) == definite
    ]
    return [word for argument, case in nouns for word in _argument(_denied(clause, argument), case)]


def _denied(clause: Clause, argument: Argument) -> Argument:
    return negative(argument) if argument is clause.object and denies_object(clause) else argument


def _says_kein(clause: Clause) -> bool:
    if isinstance(clause.predicate, Profession):
        return True
    return denies_object(clause)


def _prepositional_object(clause: Clause) -> list[str]:
    if clause.object is None or clause.verb.preposition is None or _is_fronted(clause, "object"):
        return []
    return _with_relative(clause.object, prepositional_words(clause.verb.preposition, clause.object))


def _object_words(clause: Clause, argument: Argument) -> list[str]:
    if clause.verb.preposition:
        return prepositional_words(clause.verb.preposition, argument)
    return _argument(argument, clause.verb.case)


def _slot_words(clause: Clause, slot: str) -> list[str]:
    return [word for adverbial in clause.adverbials_in(slot) for word in _adverbial_words(adverbial)]


def _adverbial_words(adverbial: Adverbial) -> list[str]:
    if isinstance(adverbial, Adverb):
        return adverbial.german.split()
    return prepositional_words(adverbial.preposition, adverbial.argument)


def _predicate_words(predicate: Predicate, negated: bool) -> list[str]:
    if isinstance(predicate, Measure):
        return [
            german_number(predicate.number),
            noun_word(predicate.unit, "nominative", True),
            predicate.adjective.german,
        ]
    if isinstance(predicate, Profession):
        return ["kein" if negated else "", predicate.noun.german]
    return _quality_words(predicate)


def _quality_words(quality: Quality) -> list[str]:
    adjective, standard = quality.adjective, quality.standard
    if standard is None:
        return [adjective.german]
    other = argument_words(standard, "nominative")
    return ["so", adjective.german, "wie", *other] if quality.degree == "equal" else [
        adjective.german_comparative, "als", *other,
    ]  # fmt: skip


def _argument(argument: Argument, case: Case) -> list[str]:
    return _with_relative(argument, argument_words(argument, case))


def _with_relative(argument: Argument, words: list[str]) -> list[str]:
    """Set the relative clause of a noun phrase after it, between commas."""
    if not isinstance(argument, NounPhrase) or argument.relative is None:
        return words
    clause = argument.relative
    return [*words, ",", *_front_words(clause), *_verb_final(clause), ","]


def _lead_words(clause: Clause) -> list[str]:
    return [*_subordinate_words(clause.lead), ","] if clause.lead else []


def _tail_words(clause: Clause) -> list[str]:
    if clause.tail is None:
        return []
    words = _subordinate_words(clause.tail) if isinstance(clause.tail, Subordinate) else _infinitive_words(clause.tail)
    return [",", *words]


def _subordinate_words(subordinate: Subordinate) -> list[str]:
    return [subordinate.conjunction.german, *_verb_final(replace(subordinate.clause, front="nothing"))]


def _infinitive_words(infinitive: Infinitive) -> list[str]:
    clause = infinitive.clause
    return ["um" if infinitive.purpose else "", *_middle_words(clause), *zu_infinitive(clause.verb)]
