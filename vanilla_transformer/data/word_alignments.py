"""Alignments of words in the format of Moses: a line per pair, such as `0-0 1-2`, source words before target words."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .readers import SentencePair, read_lines

WordPair = tuple[int, int]
_SURE = re.compile(r"(\d{1,9})-(\d{1,9})")
_POSSIBLE = re.compile(r"(\d{1,9})p(\d{1,9})")
_NEIGHBORS = [(here, there) for here in (-1, 0, 1) for there in (-1, 0, 1) if (here, there) != (0, 0)]


class GoldAlignment(NamedTuple):
    """The word pairs that an aligner must find, and the pairs that it may find, the former included."""

    sure: set[WordPair]
    possible: set[WordPair]


def read_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the aligned words of each pair, counted from 0 between white space.

    Raises:
        ValueError: The file has another number of lines, or a line names no words of its pair.
    """
    return [parse_alignment(*row) for row in _rows(path, pairs)]


def read_gold_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[GoldAlignment]:
    """Return the sure (`0-1`) and the possible (`0p1`) links of each pair.

    Raises:
        ValueError: The file has another number of lines, or a line names no words of its pair.
    """
    return [_parse_gold(*row) for row in _rows(path, pairs)]


def _rows(path: str | Path, pairs: Sequence[SentencePair]) -> list[tuple[str, SentencePair, str]]:
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise ValueError(f"{path} must have a line for each of {len(pairs)} pairs of sentences, got {len(lines)}.")
    rows = enumerate(zip(lines, pairs, strict=True), start=1)
    return [(line, pair, f"line {number} of {path}") for number, (line, pair) in rows]


def _parse_gold(line: str, pair: SentencePair, location: str) -> GoldAlignment:
    optional = [text for text in line.split() if _POSSIBLE.fullmatch(text)]
    sure = parse_alignment(" ".join(text for text in line.split() if text not in optional), pair, location)
    return GoldAlignment(sure, sure | parse_alignment(" ".join(optional).replace("p", "-"), pair, location))


def parse_alignment(line: str, pair: SentencePair, location: str) -> set[WordPair]:
    """Return the aligned words of a pair.

    Raises:
        ValueError: The line names no words of the pair; the text ends with `location`.
    """
    matches = [(text, _SURE.fullmatch(text)) for text in line.split()]
    sizes = len(pair.source.split()), len(pair.target.split())
    found = set[WordPair]()
    for text, match in matches:
        link = (int(match[1]), int(match[2])) if match else (sizes[0], sizes[1])
        if link[0] >= sizes[0] or link[1] >= sizes[1]:
            rule = f"pairs such as 0-1 of {sizes[0]} words of the source and {sizes[1]} of the target"
            raise ValueError(f"An alignment must have {rule}, got {text!r} in {location}.")
        found.add(link)
    return found


def grow_diagonally(forward: Sequence[set[WordPair]], backward: Sequence[set[WordPair]]) -> list[set[WordPair]]:
    """Return the links of both directions, and neighbors of them in one direction that link a word without a link.

    This is grow-diag (Koehn et al., 2003). The first of several neighbors is added first.
    """
    return [_grow(ours & theirs, ours | theirs) for ours, theirs in zip(forward, backward, strict=True)]


def _grow(links: set[WordPair], union: set[WordPair]) -> set[WordPair]:
    grown, waiting = set(links), sorted(union - links)
    while True:
        linked = [{link[side] for link in grown} for side in (0, 1)]
        free = (each for each in waiting if each[0] not in linked[0] or each[1] not in linked[1])
        added = next((each for each in free if _has_neighbor(each, grown)), None)
        if added is None:
            return grown
        grown.add(added)
        waiting.remove(added)


def _has_neighbor(link: WordPair, links: set[WordPair]) -> bool:
    return any((link[0] + here, link[1] + there) in links for here, there in _NEIGHBORS)


__all__ = ["GoldAlignment", "WordPair", "grow_diagonally", "parse_alignment", "read_alignments"]
__all__ += ["read_gold_alignments"]
