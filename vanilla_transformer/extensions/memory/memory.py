"""
Translation memories: sources with the translations that people gave them, read from TMX, XLIFF, PO,
TSV and other files of parallel text.

A source that is in the memory has its translation. For another one the most similar source is
found, whose translation is a draft: numbers, placeholders and so on in it are replaced by the ones
of the new text, or left out.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from transformers.utils import logging

from vanilla_transformer.data.readers import (
    CorpusSpec,
    SentencePair,
    has_invalid_unicode,
    open_corpus,
    read_rows,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import Segment, split_lines, split_sentences
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, name_language
from vanilla_transformer.text.scripts import normalize
from vanilla_transformer.text.values import is_faithful

from .fuzzy_index import FuzzyIndex

logger = logging.get_logger(__name__)
EXACT = 1.0  # the similarity of a text that is in the memory
_MOST_SIMILAR = 0.99  # of a text that is not, even if it differs in its case or its numbers only


class Match(NamedTuple):
    """
    A pair of a memory that fits a text.

    Attributes:
        similarity: `EXACT`, or the similarity of the source to the text: 1 minus the edit distance
            in words and signs, divided by their number in the longer one.
    """

    source: str
    target: str
    similarity: float


class TranslationMemory:
    """
    Pairs of a source and its translation.

    White space makes no difference. Of several translations of a source, the last one counts.

    Args:
        pairs: Sources and their translations.
        base: A further memory, for sources that this one lacks.
        name (`str`): What messages call the memory.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]] = (),
        base: "TranslationMemory | None" = None,
        name: str = "The memory",
    ):
        self._targets = dict[str, str]()
        self._base, self._lock = base, Lock()
        self._indexes = list[FuzzyIndex]()  # of the first sources, largest first
        doubles, parts = list[str](), dict[str, str]()
        for source, target in pairs:
            if self._targets.get(tidy(source), target) != target:
                doubles.append(source)
            self._targets[tidy(source)] = target
            parts |= _split(source, target)
        self._targets = parts | self._targets
        if doubles:
            logger.warning(
                "%s has %d further translations of sources that it has, of which the last one of "
                "each is used, such as of %r.",
                name,
                len(doubles),
                doubles[0],
            )

    def __len__(self) -> int:
        return len(self._targets)

    def __contains__(self, text: object) -> bool:
        """Return whether a text has a translation; that of a similar source does not count."""
        assert isinstance(text, str)
        source = tidy(text)
        target = self._targets.get(source)
        if target is not None and is_faithful(source, target):
            return True
        return self._base is not None and text in self._base

    def add(self, source: str, target: str) -> None:
        """Add a pair, instead of the one with the same source if there is one."""
        with self._lock:
            self._targets[tidy(source)] = target
            for part, translation in _split(source, target).items():
                self._targets.setdefault(part, translation)

    def find(self, text: str) -> Match | None:
        """Return the pair whose source is a text, or the one with the most similar source, if that
        is at least 0.7.
        """
        match = self._find(text)
        if self._base is None or (match is not None and match.similarity == EXACT):
            return match
        matches = filter(None, (match, self._base.find(text)))
        return max(matches, key=attrgetter("similarity"), default=None)

    def _find(self, text: str) -> Match | None:
        source = tidy(text)
        with self._lock:
            if source in self._targets:
                target = self._targets[source]
                is_exact = is_faithful(source, target)
                return Match(source, target, EXACT if is_exact else _MOST_SIMILAR)
            self._index_new()
            similar = [("", 0.0)]
            for index in self._indexes:
                similar.append(index.find(source))
            source, similarity = max(similar, key=itemgetter(1))
            if not similarity:
                return None
            return Match(source, self._targets[source], min(similarity, _MOST_SIMILAR))

    def _index_new(self) -> None:
        """Index the sources that are new, together with the last indexes if these are smaller, so
        that a source is indexed again only when their number doubles.
        """
        indexed = sum(len(index.texts) for index in self._indexes)
        if indexed == len(self._targets):  # which `islice` would take long to find
            return
        new = list(islice(self._targets, indexed, None))
        while self._indexes and len(self._indexes[-1].texts) <= len(new):
            new += self._indexes.pop().texts
        self._indexes.append(FuzzyIndex(new))


def tidy(text: str) -> str:
    """Return a text with single spaces, and in one form for letters with accents."""
    return " ".join(normalize("NFC", text).split())


def _split(source: str, target: str) -> dict[str, str]:
    """Return the lines of a pair, or the sentences of its only line, if both sides have the same
    number of them.
    """
    sides = []
    for text in (source, target):
        lines = split_lines(text)
        sentences = lines if len(lines) > 1 else [*split_sentences(Segment(text, ""))]
        sides.append([tidy(sentence.text) for sentence in sentences])
    return dict(zip(*sides, strict=True)) if len(sides[0]) == len(sides[1]) > 1 else {}


# --- Files ----------------------------------------------------------------------------------------


def as_memory(value: object, direction: Direction = NO_DIRECTION) -> TranslationMemory:
    """Return a memory, given one, the paths of its files, a mapping of sources, or pairs.

    Args:
        direction: The languages of the pairs, which most formats of files need. Files are read
            again only if they have changed.
    """
    if isinstance(value, TranslationMemory):
        return value
    entries = [value] if isinstance(value, str | Path) else value
    if isinstance(entries, Mapping):
        entries = list(entries.items())
    if not isinstance(entries, list | tuple):
        kinds = "paths of files, a mapping of sources to translations, or a list of pairs"
        raise UserError(f"`memory` must be {kinds}, got {type(value).__name__}.")
    if entries and all(isinstance(entry, str | Path) for entry in entries):
        versions = list[tuple[int, int]]()
        for path in entries:
            facts = os.stat(path)
            versions.append((facts.st_size, facts.st_mtime_ns))
        return _read_files(tuple(map(str, entries)), tuple(versions), Direction(*direction))
    for pair in entries:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise UserError(f"`memory` must have pairs of two texts, got {pair!r}.")
    return TranslationMemory(entries)


@lru_cache(maxsize=2)
def _read_files(
    paths: tuple[str, ...], versions: tuple[tuple[int, int], ...], direction: Direction
) -> TranslationMemory:
    pairs = chain.from_iterable(read_pairs(path, direction) for path in paths)
    return TranslationMemory(pairs, name=", ".join(paths))


def read_pairs(path: str, direction: Direction) -> Iterator[SentencePair]:
    """Yield the pairs of a file that have both sides."""
    source, target = (code and name_language(code) for code in direction)
    spec = CorpusSpec(file=path, source_language=source, target_language=target)
    with open_corpus(spec) as corpus:
        for number, pair, _ in read_rows(corpus):
            if any(map(has_invalid_unicode, pair)):
                raise UserError(f"{path} must be UTF-8, got other bytes in pair {number}.")
            if all(pair):
                yield pair
