"""A generated English–German corpus: real German from a small grammar, in any number, seeded and without downloads.

Each sentence is drawn once as an abstract structure, and `english.py` and `german.py` spell out that structure, so
an English sentence has one German translation in the whole corpus ("you" is always du). The grammar has gender,
case and adjective endings, weak nouns, possessives and genitives, verb-second, verb-first and verb-final clauses,
separable verbs, modals, the perfect with haben and sein, nicht and kein, questions, commands, relative and
infinitive clauses, comparison, and numbers to the thousands.

The splits are disjoint, and more than that: a test sentence holds at least one combination of words (a verb with
its object, an adjective with its noun, a number) that no training sentence holds, whatever the seeds and counts.
`combinations.py` states the rule; `GeneratedSentence.combinations` allows checking it on generated sentences.
"""

from .combinations import SPLITS, Combination, combinations, split_of_combination
from .generation import (
    SMALLEST_GRAMMAR,
    SPLIT_SIZES,
    GeneratedSentence,
    generate_pairs,
    generate_sentences,
    write_split,
)
from .spelling import SentencePair

__all__ = [
    "SMALLEST_GRAMMAR",
    "SPLITS",
    "SPLIT_SIZES",
    "Combination",
    "GeneratedSentence",
    "SentencePair",
    "combinations",
    "generate_pairs",
    "generate_sentences",
    "split_of_combination",
    "write_split",
]
