"""
TSV: a pair in each line, with a score beside it or not.

Own code reads it because `datasets` names no line in its errors and stops at the first invalid byte, which
`drop_invalid_unicode` has to survive. Quotation marks are part of the sentences.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from vanilla_transformer.text.column_names import find_named_columns

from .corpora import OpenCorpus
from .corpus_spec import CorpusRow, CorpusSpec, SentencePair
from .text_files import read_file_lines

logger = logging.getLogger(__name__)

_SAMPLE = 100  # lines at the beginning, by which columns of numbers are found


class _Columns(NamedTuple):
    """The indices of the columns, how many there are, and whether the first line names them."""

    source: int = 0
    target: int = 1
    score: int | None = None
    total: int = 2
    has_names: bool = False


def parse_tsv(corpus: OpenCorpus) -> Iterator[CorpusRow]:
    """
    Parse source TAB target, in any two columns of a file, and the score in a column of numbers.

    The first line may name the columns, see [`find_named_columns`]. Of more than two columns without names, the only
    two that are not numbers are the sides.

    Raises:
        ValueError: The columns are not clear, a line has another number of them, or a score is not a number.
    """
    name = corpus.files[0].name
    numbered = enumerate(read_file_lines(corpus.files[0]), start=1)
    first = list(islice(numbered, _SAMPLE))
    columns = _find_columns([line for _, line in first if line.strip()], corpus.spec, name)
    for number, line in chain(first[columns.has_names :], numbered):
        cells = [cell.strip() for cell in line.split("\t")] if line.strip() else [""] * columns.total
        if len(cells) != columns.total:
            rule = "two columns, source TAB target" if columns.total == 2 else f"{columns.total} columns, as the first"
            raise ValueError(f"Line {number} of {name} must have {rule}, it has {len(cells)}.")
        score = None
        if columns.score is not None and line.strip():
            score = parse_score(cells[columns.score], f"Line {number} of {name}")
        yield CorpusRow(number, SentencePair(cells[columns.source], cells[columns.target]), score)


def _find_columns(lines: Sequence[str], spec: CorpusSpec, name: str) -> _Columns:
    """Return the columns of a file that begins with these lines, and log them if they are not just two sentences."""
    if not lines:
        return _Columns()
    first = lines[0].split("\t")
    sides = find_named_columns(first, spec.source_language, spec.target_language)
    has_names, count = sides is not None, len(first)
    rows = [cells for line in lines[has_names:] if len(cells := line.split("\t")) == count]
    numbers = [index for index in range(count) if rows and all(_is_number(cells[index]) for cells in rows)]
    if sides is None:
        texts = [index for index in range(count) if index not in numbers] if count > 2 else [0, 1]
        if len(texts) != 2 or count < 2:
            hint = " Name the columns in a first line, such as source TAB target." if count > 2 else ""
            rule = "two columns, source TAB target" + (", besides columns of numbers" if count > 2 else "")
            raise ValueError(f"Line 1 of {name} must have {rule}, it has {count}.{hint}")
        sides = texts[0], texts[1]
    scores = [index for index in numbers if index not in sides]
    named = [index for index in scores if has_names and first[index].strip().casefold() == "score"]
    chosen = named or (scores if len(scores) == 1 else [])
    columns = _Columns(*sides, chosen[0] if chosen else None, count, has_names)
    if has_names or count > 2:
        logger.info(_describe(columns, name))
    return columns


def _describe(columns: _Columns, name: str) -> str:
    names = "The first line names the columns: " if columns.has_names else ""
    if columns.total == 2 or columns.score is None:
        scores = "" if columns.total == 2 else "; no other is read"
    else:
        scores = f", and column {columns.score + 1} has scores, by which `min_score` drops pairs"
    return f"{name}: {names}column {columns.source + 1} is the source, column {columns.target + 1} the target{scores}."


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def parse_score(cell: object, location: str) -> float:
    """Return the score of a pair.

    Raises:
        ValueError: It is not a number; the message gives `location`, such as the line.
    """
    text = str(cell)
    if isinstance(cell, bool) or not _is_number(text):
        raise ValueError(f"{location} must have a number as its score, got {text[:40]!r}.")
    return float(text)
