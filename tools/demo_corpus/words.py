"""Written words that know what they spell, and the alignment of two languages that follows from it.

An entry is a path of objects in the structure of a sentence, such as (object of the clause, its adjective). Words of
both languages that spell the same entry are aligned:

* Articles and possessives are aligned with each other, nouns, adjectives and numbers too. A genitive article has the
  article of its English owner ("the teacher's": des Lehrers).
* The full verb is aligned with the full verb, its separated prefix and its particle ("picks up": holt, ab). The finite
  word also spells the tense: "is" and "reading" are both aligned with "liest", "did" and "will" with the auxiliary,
  and "sold" with "hat" and "verkauft". So "do" goes with the German finite verb.
* A word that fuses two has the links of both: im (in the), kein (not a), cannot (kann nicht), aufzumachen (to open).
* Times of day and other fixed adverbials are aligned word by word; a tie `~` in the lexicon binds words that
  share their links ("half~past": halb).
* A preposition without a counterpart goes with its verb ("looks for": sucht). The "to" of a recipient, an article
  before a profession and the article of a noun with an English owner have no link.
"""

from __future__ import annotations

from typing import NamedTuple

Entry = tuple[object, ...]

# What words spell besides the objects of a structure.
DETERMINER = "determiner"
COUNT = "count"
TENSE = "tense"
NEGATION = "negation"
INFINITIVE = "infinitive"
COMPARISON = "comparison"
AND = "and"
THERE = "there"


class Word(NamedTuple):
    """A word as it is written, or a comma, and the entries that it spells."""

    text: str
    entries: frozenset[Entry] = frozenset()


COMMA = Word(",")


def spell(text: str, *parts: object) -> list[Word]:
    """Return the words of `text`, each of which spells all these parts; none if the text is empty."""
    entries = frozenset((part,) for part in parts)
    return [Word(word, entries) for word in text.split()]


def spell_each(text: str, part: object) -> list[Word]:
    """Return the words of `text`, each with a separate entry; words bound by a tie share it."""
    units = enumerate(text.split())
    return [Word(word, frozenset([(part, place)])) for place, unit in units for word in unit.split("~")]


def within(part: object, words: list[Word]) -> list[Word]:
    """Put the entries of `words` inside a part of the structure."""
    return [Word(word.text, frozenset((part, *entry) for entry in word.entries)) for word in words]


def fuse(text: str, *words: Word) -> Word:
    """Return one word that spells all that `words` spell."""
    return Word(text, frozenset().union(*(word.entries for word in words)))


def join(words: list[Word], mark: str) -> str:
    """Write a sentence; a comma is bound to the word before it, stands only once, and never before the final mark."""
    text = " ".join(word.text for word in words)
    text = text.replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark


def align(source: list[Word], target: list[Word]) -> str:
    """Return the links of two sentences between their white-space words as Moses pairs ("0-0 1-2")."""
    targets = [word.entries for word in target if word != COMMA]
    return " ".join(
        f"{place}-{other}"
        for place, entries in enumerate(word.entries for word in source if word != COMMA)
        for other, found in enumerate(targets)
        if not entries.isdisjoint(found)
    )
