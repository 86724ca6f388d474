"""Readers of parallel text: text files, TSV, JSONL, TMX, XLIFF and Parquet files, archives of OPUS, and datasets."""

from collections.abc import Callable, Iterator

from .corpora import MIN_ROWS_PER_PROCESS, ROWS_PER_BATCH, OpenCorpus, content_key, load_splits, open_corpus
from .corpus_spec import CorpusSpec, SentencePair, file_format
from .line_formats import (
    blank_side_error,
    parse_dataset,
    parse_jsonl,
    parse_moses_zip,
    parse_parallel_lines,
    parse_parquet,
    parse_tsv,
    read_text_files,
    stream_text_files,
)
from .text_files import escape_invalid_unicode, has_invalid_unicode, invalid_unicode_error, read_lines, stream_lines
from .xml_formats import parse_tmx, parse_xliff

# Parsers by the suffix of `file`.
_PARSERS: dict[str, Callable[[OpenCorpus], Iterator[SentencePair]]] = {
    ".tsv": parse_tsv,
    ".jsonl": parse_jsonl,
    ".tmx": parse_tmx,
    ".xliff": parse_xliff,
    ".xlf": parse_xliff,
    ".sdlxliff": parse_xliff,
    ".mqxliff": parse_xliff,
    ".parquet": parse_parquet,
    ".zip": parse_moses_zip,
}


def read_pairs(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Yield the pairs of a corpus, one per line or row, before cleaning.

    A side may be blank. Bytes that are not UTF-8 become lone surrogates (PEP 383), which the cleaning rules find.

    Raises:
        ValueError: a file is empty or corrupt, the numbers of lines differ, or a line or row does not hold a pair.
    """
    pairs = _parse(corpus)
    return (SentencePair(pair.target, pair.source) for pair in pairs) if corpus.spec.reverse else pairs


def _parse(corpus: OpenCorpus) -> Iterator[SentencePair]:
    if corpus.rows is not None:
        return parse_dataset(corpus)
    if corpus.spec.source is not None:
        return parse_parallel_lines(corpus)
    return _PARSERS[file_format(corpus.files[0].name)](corpus)


__all__ = ["MIN_ROWS_PER_PROCESS", "ROWS_PER_BATCH"]
__all__ += ["CorpusSpec", "OpenCorpus", "SentencePair", "blank_side_error", "content_key", "escape_invalid_unicode"]
__all__ += ["has_invalid_unicode", "invalid_unicode_error", "load_splits", "open_corpus", "read_lines", "read_pairs"]
__all__ += ["read_text_files", "stream_lines", "stream_text_files"]
