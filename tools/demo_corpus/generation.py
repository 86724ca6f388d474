"""Generates sentence pairs for a split from the table of frames."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .combinations import SPLITS, Combination, Split, combinations, split_of
from .compounds import attempt, joined, purpose, relative_object, relative_subject
from .draw import Draw
from .questions import circumstance_question, object_question, recipient_question, who_question, yes_no_question
from .spelling import SentencePair, spell_out_aligned
from .statements import amount, command, description, existence, location, preference, profession, statement
from .structures import Sentence
from .subordinates import condition, indirect_question, reason, sequence, that_clause

# How often each kind of sentence is drawn.
FRAMES: tuple[tuple[Callable[[Draw], Sentence], float], ...] = (
    (statement, 38), (description, 7), (location, 3), (profession, 1.5), (existence, 3), (amount, 8),
    (preference, 3.5), (command, 4), (yes_no_question, 5), (who_question, 1.5), (object_question, 4),
    (recipient_question, 0.5), (circumstance_question, 4), (that_clause, 3), (indirect_question, 2), (reason, 4),
    (condition, 2), (sequence, 1), (relative_subject, 3), (relative_object, 2), (attempt, 1.5), (purpose, 1.5),
    (joined, 3),
)  # fmt: skip


# The grammar has been made to give at least so many distinct pairs of each split; it has many more.
SMALLEST_GRAMMAR: dict[str, int] = {"train": 1_200_000, "validation": 100_000, "test": 100_000}


# Pairs of each split that the package ships.
SPLIT_SIZES: dict[str, int] = {"train": 30_000, "validation": 2_000, "test": 2_000}


class GeneratedSentence(NamedTuple):
    """A sentence pair, its alignment as Moses pairs, its combinations of words and the kind of sentence it is."""

    pair: SentencePair
    alignment: str
    combinations: frozenset[Combination]
    frame: str


def generate_sentences(split: str, count: int, seed: int = 0) -> list[GeneratedSentence]:
    """Generate distinct English–German sentences of one split, each with its held-out combinations.

    Args:
        split: "train", "validation" or "test".
        count: how many sentences; from 1 to 1,200,000 for train, to 100,000 for validation and test.
        seed: another seed gives other sentences of the same split.

    Returns:
        `count` sentences, distinct in English, in the order drawn: the same in every process and version of
        Python, and the first sentences of a longer list with the same seed.

    Raises:
        ValueError: if the split is unknown, or `count` is below 1 or above what the grammar surely gives.
    """
    checked = _checked_split(split, count)
    found: dict[str, GeneratedSentence] = {}
    for sentence in _endless_sentences(checked, seed):
        found.setdefault(sentence.pair.source, sentence)
        if len(found) == count:
            break
    return list(found.values())


def generate_pairs(split: str, count: int, seed: int = 0) -> list[SentencePair]:
    """Generate distinct English–German sentence pairs of one split; see `generate_sentences`.

    Returns:
        `count` pairs of an English `source` and its only German `target`, both with capitals and final punctuation.

    Raises:
        ValueError: if the split is unknown, or `count` is below 1 or above what the grammar surely gives.
    """
    return [sentence.pair for sentence in generate_sentences(split, count, seed)]


def write_split(folder: str | os.PathLike[str], split: str, count: int, seed: int = 0) -> list[Path]:
    """Write a split as `{split}.tsv.gz`, source TAB target, and `{split}.align.gz`, Moses pairs of white-space words.

    Returns:
        The two paths. The same sentences give the same bytes.

    Raises:
        ValueError: the split is unknown, or `count` is below 1 or above the guaranteed size of the grammar.
        OSError: a file cannot be written.
    """
    sentences = generate_sentences(split, count, seed)
    texts = {
        "tsv": (f"{sentence.pair.source}\t{sentence.pair.target}\n" for sentence in sentences),
        "align": (f"{sentence.alignment}\n" for sentence in sentences),
    }
    return [_write_gzip(Path(folder) / f"{split}.{kind}.gz", "".join(lines)) for kind, lines in texts.items()]


def _write_gzip(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:  # no name, no time
        compressed.write(text.encode())
    return path


def _checked_split(split: str, count: int) -> Split:
    known = next((name for name in SPLITS if name == split), None)
    if known is None:
        raise ValueError(f"The corpus has the splits {', '.join(SPLITS)}; got {split!r}. Name one of these.")
    if count < 1:
        raise ValueError(f"A corpus needs at least one pair; got count {count} for {split}. Ask for 1 or more.")
    if count > SMALLEST_GRAMMAR[known]:
        raise ValueError(
            f"The grammar surely has {SMALLEST_GRAMMAR[known]} distinct pairs for {split}; got count {count}. "
            f"Ask for at most {SMALLEST_GRAMMAR[known]}."
        )
    return known


def _endless_sentences(split: Split, seed: int) -> Iterator[GeneratedSentence]:
    """Draw sentences of a split without end; they may repeat."""
    draw = Draw(f"{split}:{seed}")
    while True:
        sentence = draw.weighted(FRAMES)(draw)
        found = combinations(sentence)
        if split_of(found) == split:
            yield GeneratedSentence(*spell_out_aligned(sentence), found, sentence.frame)
