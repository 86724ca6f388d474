"""
Draw phrase pairs from aligned sentences: text without a period and often without a verb, as in
titles and labels.

A phrase pair is consistent with the links between the words of its sentences: no word of either
side is linked with a word outside (Koehn, Och and Marcu, 2003, "Statistical Phrase-Based
Translation").
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from random import Random

import datasets
import numpy as np
import regex

from vanilla_transformer.data.readers import SentencePair, WordPair
from vanilla_transformer.text.units import Span

from .augmentation import tag_of
from .perturbations import PERIODS

_LONGEST = 7  # words on either side
_SAMPLE = 1_000  # pairs, in which common words are counted
# Words without punctuation at their edges.
_WORDS = regex.compile(r"(?:(?![\p{P}\p{S}])\S++(?<![\p{P}\p{S}]) ?)++")


def find_common_words(texts: datasets.Dataset) -> set[str]:
    """Return the most frequent words of both sides, in lower case, which make up half of the
    text.
    """
    sample = texts.select(range(0, len(texts), max(1, len(texts) // _SAMPLE)))
    counts = Counter(" ".join([*sample["source"], *sample["target"]]).casefold().split())
    sums = np.cumsum([count for _, count in counts.most_common()])
    size = int(np.searchsorted(sums, counts.total() / 2))
    return {word for word, _ in counts.most_common(size)}


def draw_phrase(
    pair: SentencePair,
    words: set[WordPair],
    random: Random,
    common: Collection[str],
    tags: Sequence[str] = (),
) -> tuple[SentencePair, set[WordPair]]:
    """
    Return one of the phrase pairs of a sentence, all with the same probability, and its aligned
    words; or the sentence if it has none.

    A phrase at the start of either sentence begins with a capital, and so does half of the others.

    Args:
        tags: Words at the start of sources, which a phrase gets as well.
    """
    tag = tag_of(pair.source, tags)
    source, target = (side.rstrip(f"{PERIODS} ").split() for side in pair)
    first_word = len(tag.split())
    spans = list(find_phrases(source, target, words, common, first_word))
    if not spans:
        return pair, words
    (start, end), (first, last) = random.choice(spans)
    sides = [" ".join(source[start:end]), " ".join(target[first:last])]
    if start == first_word or first == 0 or random.choice((True, False)):
        sides = [side[0].title() + side[1:] for side in sides]
    inside = {
        (word - start + first_word, other - first) for word, other in words if start <= word < end
    }
    return SentencePair(tag + sides[0], sides[1]), inside


def find_phrases(
    source: Sequence[str],
    target: Sequence[str],
    words: set[WordPair],
    common: Collection[str],
    first_word: int = 0,
) -> Iterator[tuple[Span, Span]]:
    """
    Yield where the words of each phrase pair are on both sides.

    A phrase has up to seven words on each side, and more than one on one of them, at most twice as
    many as on the other. It begins and ends with linked words, the last ones not common, and has no
    punctuation between words. The work is linear in the number of words and links.

    Args:
        first_word: The place of the first word of the source, after its tag.
    """
    sources = defaultdict[int, list[int]](list)
    targets = defaultdict[int, list[int]](list)
    for word, other in words:
        sources[other].append(word)
        targets[word].append(other)
    for start in range(first_word, len(source)):
        linked = list[int]()
        for end in range(start + 1, min(start + _LONGEST, len(source)) + 1):
            linked += targets[end - 1]
            if not targets[start] or max(linked) - min(linked) >= _LONGEST:
                break
            first, last = min(linked), max(linked) + 1
            if (
                targets[end - 1]
                and last <= len(target)
                and (end - start, last - first) != (1, 1)
                and end - start <= 2 * (last - first)
                and last - first <= 2 * (end - start)
                and source[end - 1].casefold() not in common
                and target[last - 1].casefold() not in common
                and all(
                    start <= word < end for other in range(first, last) for word in sources[other]
                )
                and _WORDS.fullmatch(" ".join(source[start:end]))
                and _WORDS.fullmatch(" ".join(target[first:last]))
            ):
                yield (start, end), (first, last)
