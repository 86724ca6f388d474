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
from .words import (
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

_WERDEN = ("werde", "wirst", "wird")
_AUXILIARIES = {"haben": ("habe", "hast", "hat"), "sein": ("bin", "bist", "ist")}
_EARLY: tuple[Slot, ...] = ("time", "clock", "frequency", "reason")
_LATE: tuple[Slot, ...] = ("manner", "companion", "place")


def german_clause(clause: Clause) -> list[Word]:
    """Return a main clause: the fronted part, the finite verb, the middle, the rest of the verb, and the tail."""
    clause = _swapped(clause)
    finite, final = _verb_parts(clause)
    words = [*_lead_words(clause), *_front_words(clause), *finite, *_middle_words(clause), *final]
    return words + _tail_words(clause)


def german_existence(existence: Existence) -> list[Word]:
    """ "In der Küche gibt es zwei Stühle": the place in front, what there is in the accusative."""
    theme = negative(existence.theme) if existence.negated else existence.theme
    verb = [*spell("gab" if existence.tense == "past" else "gibt", TENSE), *spell("es", THERE)]
    place, words = _adverbial_words(existence.place), within(existence.theme, argument_words(theme, "accusative"))
    return [*verb, *place, *words] if existence.mood == "question" else [*place, *verb, *words]


def _verb_final(clause: Clause) -> list[Word]:
    """Return a clause without its conjunction: middle, then the verbs with the finite one last."""
    clause = _swapped(clause)
    finite, final = _verb_parts(clause)
    if final and final[-1].text == clause.verb.prefix:
        final, finite = final[:-1], [fuse(final[-1].text + finite[0].text, final[-1], finite[0])]
    return [*_middle_words(clause), *final, *finite, *_tail_words(clause)]


def _swapped(clause: Clause) -> Clause:
    """Gefallen turns the clause round: the person who likes is in the dative, the liked thing is the subject."""
    if not clause.verb.swaps or clause.object is None:
        return clause
    return replace(clause, subject=clause.object, object=clause.subject)


def _verb_parts(clause: Clause) -> tuple[list[Word], list[Word]]:
    """Return the finite verb, and the words that close the clause."""
    verb, (person, plural) = clause.verb, agreement(clause.subject)
    if clause.mood == "command":
        return spell(imperative_verb(verb), verb, TENSE), _prefix(clause)
    if clause.modal and not clause.modal.adverb:
        preterite = clause.modal.preterite if clause.tense == "past" else None
        modal = preterite_verb(preterite, person, plural) if preterite else finite_modal(clause.modal, person, plural)
        return spell(modal, clause.modal, TENSE), spell(verb.infinitive, verb)
    if clause.tense == "future":
        return spell("werden" if plural else _WERDEN[person - 1], TENSE), spell(verb.infinitive, verb)
    if clause.tense == "past" and verb.preterite:
        return spell(preterite_verb(verb.preterite, person, plural), verb, TENSE), []
    if clause.tense == "past":
        return spell(_auxiliary(verb.auxiliary, person, plural), TENSE), spell(verb.participle, verb)
    return spell(finite_verb(verb, person, plural), verb, TENSE), _prefix(clause)


def _auxiliary(auxiliary: str, person: int, plural: bool) -> str:
    if plural:
        return "haben" if auxiliary == "haben" else "sind"
    return _AUXILIARIES[auxiliary][person - 1]


def _prefix(clause: Clause) -> list[Word]:
    return spell(clause.verb.prefix, clause.verb)


def _front_words(clause: Clause) -> list[Word]:
    if clause.lead or clause.mood == "command" or clause.front == "nothing":
        return []
    if clause.front == "subject":
        return _argument(clause.subject, "nominative")
    if clause.front == "object" and clause.object is not None:
        return _object_words(clause, clause.object)
    if clause.front == "recipient" and clause.recipient is not None:
        return _argument(clause.recipient, "dative")
    return _slot_words(clause, clause.front)


def _middle_words(clause: Clause) -> list[Word]:
    words = _subject_and_pronouns(clause) + _slot_words(clause, "please")
    objects, times = _noun_objects(clause, definite=True), _time_words(clause)
    words += [*times, *objects] if _has_early_time(clause) else [*objects, *times]
    words += spell("nicht", NEGATION) if clause.negated and not _says_kein(clause) else []
    words += spell(clause.modal.adverb, clause.modal) if clause.modal else []
    words += [word for slot in _LATE if not _is_fronted(clause, slot) for word in _slot_words(clause, slot)]
    words += _noun_objects(clause, definite=False) + _slot_words(clause, "benefit") + _prepositional_object(clause)
    words += [] if _is_fronted(clause, "complement") else _slot_words(clause, "complement")
    return words + (_predicate_words(clause.predicate, clause.negated) if clause.predicate else [])


def _subject_and_pronouns(clause: Clause) -> list[Word]:
    """Put the subject first; with "gefallen" a noun follows the pronoun (Gefällt dir der Film?)."""
    subject = [] if _is_fronted(clause, "subject") else _argument(clause.subject, "nominative")
    pronouns = _pronoun_words(clause)
    return (
        [*pronouns, *subject]
        if clause.verb.swaps and not isinstance(clause.subject, Pronoun)
        else [*subject, *pronouns]
    )


def _time_words(clause: Clause) -> list[Word]:
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


def _pronoun_words(clause: Clause) -> list[Word]:
    """Pronouns stand first of all objects, and the accusative before the dative."""
    pronouns = [pair for pair in _objects(clause) if isinstance(pair[0], Pronoun)]
    return [word for argument, case in reversed(pronouns) for word in _argument(argument, case)]


def _noun_objects(clause: Clause, definite: bool) -> list[Word]:
    nouns = [
        pair for pair in _objects(clause) if not isinstance(pair[0], Pronoun) and is_definite(pair[0]) == definite
    ]
    return [word for argument, case in nouns for word in _noun_object(clause, argument, case)]


def _noun_object(clause: Clause, argument: Argument, case: Case) -> list[Word]:
    """Spell out an object; kein, where a denial falls on it, spells the English not and its article."""
    if argument is not clause.object or not denies_object(clause):
        return _argument(argument, case)
    kein, *others = within(argument, argument_words(negative(argument), case))
    return [fuse(kein.text, kein, *spell("nicht", NEGATION)), *others]


def _says_kein(clause: Clause) -> bool:
    if isinstance(clause.predicate, Profession):
        return True
    return denies_object(clause)


def _prepositional_object(clause: Clause) -> list[Word]:
    if clause.object is None or clause.verb.preposition is None or _is_fronted(clause, "object"):
        return []
    return _with_relative(clause.object, prepositional_words(clause.verb.preposition, clause.object))


def _object_words(clause: Clause, argument: Argument) -> list[Word]:
    if clause.verb.preposition:
        return prepositional_words(clause.verb.preposition, argument)
    return _argument(argument, clause.verb.case)


def _slot_words(clause: Clause, slot: str) -> list[Word]:
    return [word for adverbial in clause.adverbials_in(slot) for word in _adverbial_words(adverbial)]


def _adverbial_words(adverbial: Adverbial) -> list[Word]:
    if isinstance(adverbial, Adverb):
        return spell_each(adverbial.german, adverbial)
    return within(adverbial, prepositional_words(adverbial.preposition, adverbial.argument))


def _predicate_words(predicate: Predicate, negated: bool) -> list[Word]:
    if isinstance(predicate, Measure):
        number, unit = german_number(predicate.number), noun_word(predicate.unit, "nominative", True)
        adjective = spell(predicate.adjective.german, predicate.adjective)
        return within(predicate, [*spell(number, COUNT), *spell(unit, predicate.unit), *adjective])
    if isinstance(predicate, Quality):
        return within(predicate, _quality_words(predicate))
    noun = within(predicate, spell(predicate.noun.german, predicate.noun))
    article = within(predicate, spell_each("ein", DETERMINER))
    return [fuse("kein", *article, *spell("nicht", NEGATION)), *noun] if negated else noun


def _quality_words(quality: Quality) -> list[Word]:
    adjective, standard = quality.adjective, quality.standard
    if standard is None:
        return spell(adjective.german, adjective)
    other = within(standard, argument_words(standard, "nominative"))
    if quality.degree == "equal":
        positive = spell(adjective.german, adjective)
        return [*spell("so", COMPARISON), *positive, *spell("wie", COMPARISON), *other]
    return [*spell(adjective.german_comparative, adjective), *spell("als", COMPARISON), *other]


def _argument(argument: Argument, case: Case) -> list[Word]:
    return _with_relative(argument, within(argument, argument_words(argument, case)))


def _with_relative(argument: Argument, words: list[Word]) -> list[Word]:
    """Set the relative clause of a noun phrase after it, between commas."""
    if not isinstance(argument, NounPhrase) or argument.relative is None:
        return words
    clause = argument.relative
    inner = within(argument, within(clause, [*_front_words(clause), *_verb_final(clause)]))
    return [*words, COMMA, *inner, COMMA]


def _lead_words(clause: Clause) -> list[Word]:
    return [*_subordinate_words(clause.lead), COMMA] if clause.lead else []


def _tail_words(clause: Clause) -> list[Word]:
    if clause.tail is None:
        return []
    words = _subordinate_words(clause.tail) if isinstance(clause.tail, Subordinate) else _infinitive_words(clause.tail)
    return [COMMA, *words]


def _subordinate_words(subordinate: Subordinate) -> list[Word]:
    clause, conjunction = replace(subordinate.clause, front="nothing"), subordinate.conjunction
    return within(subordinate, [*spell(conjunction.german, conjunction), *_verb_final(clause)])


def _infinitive_words(infinitive: Infinitive) -> list[Word]:
    clause = infinitive.clause
    um = spell("um" if infinitive.purpose else "", INFINITIVE)
    return within(infinitive, [*um, *_middle_words(clause), *zu_infinitive(clause.verb)])
