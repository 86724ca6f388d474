"""Alignments of words in the format of Moses: a line per pair, such as `0-0 1-2`, source words before target words."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .readers import SentencePair, read_lines

WordPair = tuple[int, int]
_PAIR = re.compile(r"(\d{1,9})-(\d{1,9})")


def read_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the aligned words of each pair, counted from 0 between white space.

    Raises:
        ValueError: The file has another number of lines, or a line names no words of its pair.
    """
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise ValueError(f"{path} must have a line for each of {len(pairs)} pairs of sentences, got {len(lines)}.")
    rows = enumerate(zip(lines, pairs, strict=True), start=1)
    return [parse_alignment(line, pair, f"line {number} of {path}") for number, (line, pair) in rows]


def parse_alignment(line: str, pair: SentencePair, location: str) -> set[WordPair]:
    """Return the aligned words of a pair.

    Raises:
        ValueError: The line names no words of the pair; the text ends with `location`.
    """
    matches = [(text, _PAIR.fullmatch(text)) for text in line.split()]
    sizes = len(pair.source.split()), len(pair.target.split())
    found = set[WordPair]()
    for text, match in matches:
        link = (int(match[1]), int(match[2])) if match else (sizes[0], sizes[1])
        if link[0] >= sizes[0] or link[1] >= sizes[1]:
            rule = f"pairs such as 0-1 of {sizes[0]} words of the source and {sizes[1]} of the target"
            raise ValueError(f"An alignment must have {rule}, got {text!r} in {location}.")
        found.add(link)
    return found


def alignment_error_rate(found: Iterable[set[WordPair]], expected: Iterable[set[WordPair]]) -> float:
    """Return the alignment error rate over all pairs, from 0 to 1: `1 - 2 |A ∩ B| / (|A| + |B|)`."""
    shared = total = 0
    for ours, theirs in zip(found, expected, strict=True):
        shared += len(ours & theirs)
        total += len(ours) + len(theirs)
    return 1.0 - 2.0 * shared / total if total else 0.0


__all__ = ["WordPair", "alignment_error_rate", "parse_alignment", "read_alignments"]
