"""From a structure to a pair of written sentences and their word alignment."""

from __future__ import annotations

from typing import NamedTuple

from .english import english_clause, english_existence
from .german_clauses import german_clause, german_existence
from .structures import Existence, Sentence
from .words import COMMA, Word, align, join, spell, within


class SentencePair(NamedTuple):
    """An English sentence and its German translation."""

    source: str
    target: str


def spell_out(sentence: Sentence) -> SentencePair:
    """Write a structure as an English and a German sentence, with capitals and punctuation."""
    return spell_out_aligned(sentence)[0]


def spell_out_aligned(sentence: Sentence) -> tuple[SentencePair, str]:
    """Write a structure in both languages, and the alignment of their white-space words as Moses pairs."""
    mark = "?" if sentence.clause.mood == "question" else "."
    english, german = _english_words(sentence), _german_words(sentence)
    return SentencePair(join(english, mark), join(german, mark)), align(english, german)


def _english_words(sentence: Sentence) -> list[Word]:
    if isinstance(sentence.clause, Existence):
        return english_existence(sentence.clause)
    words = english_clause(sentence.clause)
    if sentence.conjunction is None or sentence.second is None:
        return words
    conjunction = spell(sentence.conjunction.english, sentence.conjunction)
    return [*words, COMMA, *conjunction, *within(sentence.second, english_clause(sentence.second))]


def _german_words(sentence: Sentence) -> list[Word]:
    """Like the English words; but German sets no comma before und."""
    if isinstance(sentence.clause, Existence):
        return german_existence(sentence.clause)
    words = german_clause(sentence.clause)
    if sentence.conjunction is None or sentence.second is None:
        return words
    comma = [] if sentence.conjunction.german == "und" else [COMMA]
    conjunction = spell(sentence.conjunction.german, sentence.conjunction)
    return [*words, *comma, *conjunction, *within(sentence.second, german_clause(sentence.second))]
