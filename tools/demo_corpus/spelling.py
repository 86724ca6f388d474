"""From a structure to a pair of written sentences."""

from __future__ import annotations

from typing import NamedTuple

from .english import english_clause, english_existence
from .german_clauses import german_clause, german_existence
from .structures import Existence, Sentence


class SentencePair(NamedTuple):
    """An English sentence and its German translation."""

    source: str
    target: str


def spell_out(sentence: Sentence) -> SentencePair:
    """Write a structure as an English and a German sentence, with capitals and punctuation."""
    mark = "?" if sentence.clause.mood == "question" else "."
    return SentencePair(_written(_english_words(sentence), mark), _written(_german_words(sentence), mark))


def _english_words(sentence: Sentence) -> list[str]:
    if isinstance(sentence.clause, Existence):
        return english_existence(sentence.clause)
    words = english_clause(sentence.clause)
    if sentence.conjunction is None or sentence.second is None:
        return words
    return [*words, ",", sentence.conjunction.english, *english_clause(sentence.second)]


def _german_words(sentence: Sentence) -> list[str]:
    """Like the English words; but German sets no comma before und."""
    if isinstance(sentence.clause, Existence):
        return german_existence(sentence.clause)
    words = german_clause(sentence.clause)
    if sentence.conjunction is None or sentence.second is None:
        return words
    comma = "" if sentence.conjunction.german == "und" else ","
    return [*words, comma, sentence.conjunction.german, *german_clause(sentence.second)]


def _written(words: list[str], mark: str) -> str:
    """Join words; a comma is bound to the word before it, stands only once, and never before the final mark."""
    text = " ".join(word for word in words if word)
    text = text.replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark
