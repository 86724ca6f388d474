"""Two text files: line n of the target file is the translation of line n of the source file."""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from .corpus_spec import CorpusSpec, SentencePair
from .invalid_unicode import has_invalid_unicode, invalid_unicode_error
from .lines import read_file_lines, read_lines
from .open_corpora import OpenCorpus, open_corpus


def read_text_files(source_file: str | Path, target_file: str | Path) -> list[SentencePair]:
    """
    Read two parallel UTF-8 files: line n of the target file is the translation of line n of the source file.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is empty or not UTF-8 (with the line), the numbers of lines differ, or a line is blank on
            one side only (with the line).
    """
    sources, targets = read_lines(source_file), read_lines(target_file)
    if len(sources) != len(targets):
        raise _different_line_counts(source_file, len(sources), target_file, len(targets))
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        if bool(source) != bool(target):
            raise blank_side_error(number, source_file if not source else target_file)
    return [SentencePair(source, target) for source, target in zip(sources, targets, strict=True) if source]


def blank_side_error(number: int, location: str | Path) -> ValueError:
    """Return the error for a line or row without text on one side."""
    return ValueError(
        f"Line {number} of {location} is blank, but its translation is not. Mend or delete both, or leave such pairs "
        "out by `drop_empty`."
    )


def stream_text_files(source_file: str | Path, target_file: str | Path) -> Iterator[SentencePair]:
    """
    Yield the pairs of two parallel UTF-8 files one by one, without white space at the ends. A side may be blank.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is empty or not UTF-8 (with the line), or the numbers of lines differ.
    """
    with open_corpus(CorpusSpec(source=str(source_file), target=str(target_file))) as corpus:
        for number, pair in enumerate(parse_parallel_lines(corpus), start=1):
            for path, text in zip((source_file, target_file), pair, strict=True):
                if has_invalid_unicode(text):
                    raise invalid_unicode_error(number, path, text)
            yield pair


def parse_parallel_lines(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Pair the lines of two files."""
    source_file, target_file = corpus.files
    names = [source_file.name, target_file.name]
    return pair_lines(read_file_lines(source_file), read_file_lines(target_file), names)


def pair_lines(sources: Iterator[str], targets: Iterator[str], names: Sequence[str]) -> Iterator[SentencePair]:
    """Pair lines, without white space at their ends.

    Raises:
        ValueError: the numbers of lines differ; the message gives the `names` of both files.
    """
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in chain(sources, targets))
            counts = [number, number + rest] if source is None else [number + rest, number]
            raise _different_line_counts(names[0], counts[0], names[1], counts[1])
        yield SentencePair(source.strip(), target.strip())


def _different_line_counts(source_file: Any, sources: int, target_file: Any, targets: int) -> ValueError:
    return ValueError(
        f"Both sides must have the same number of lines, got {sources} in {source_file} and {targets} in "
        f"{target_file}."
    )
