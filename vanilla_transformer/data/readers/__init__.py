"""Readers of parallel text: lines, tables, TMX, XLIFF, catalogs of messages, archives of OPUS, and
datasets.
"""

from collections.abc import Iterator
from itertools import count

from vanilla_transformer.files.formats import FORMAT_OF_ENDING
from vanilla_transformer.files.text_files import (
    check_version,
    has_invalid_unicode,
    read_lines,
    stream_lines,
)

from .corpora import (
    ROWS_PER_BATCH,
    CorpusRow,
    CorpusSpec,
    OpenCorpus,
    Piece,
    SentencePair,
    WordPair,
    content_key,
    file_format,
    load_splits,
    open_corpus,
)
from .line_formats import (
    blank_side_error,
    parse_jsonl,
    parse_moses_zip,
    parse_parallel_lines,
    parse_parquet,
    parse_tables,
    parse_tsv,
    read_text_files,
    split_corpus,
    stream_text_files,
)

# Parsers that give the score of a pair, and its line where that is not its number, by formats
_ROW_PARSERS = {"tsv": parse_tsv, "jsonl": parse_jsonl, "parquet": parse_parquet}


def read_rows(corpus: OpenCorpus) -> Iterator[CorpusRow]:
    """
    Yield the pairs of a corpus with their lines and scores, one per line or row, before cleaning.

    A side may be blank. Bytes that are not UTF-8 become lone surrogates (PEP 383), which the
    cleaning rules find.
    """
    rows = _parse(corpus)
    if corpus.spec.reverse:
        for number, pair, score in rows:
            yield CorpusRow(number, SentencePair(pair.target, pair.source), score)
    else:
        yield from rows
    for file, version in zip(corpus.files, corpus.versions, strict=True):
        check_version(file, version)


def read_pairs(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Yield the pairs of a corpus, see [`read_rows`]."""
    return (row.pair for row in read_rows(corpus))


def _parse(corpus: OpenCorpus) -> Iterator[CorpusRow]:
    if corpus.rows is not None:
        tables = corpus.rows.with_format("arrow").iter(ROWS_PER_BATCH)
        return parse_tables(tables, corpus.spec)
    form = FORMAT_OF_ENDING.get(corpus.format)
    if form is None:
        pairs = parse_parallel_lines(corpus)
    elif form.name in _ROW_PARSERS:
        return _ROW_PARSERS[form.name](corpus)
    elif form.name == "zip":
        pairs = parse_moses_zip(corpus)
    elif form.store is not None or form.corpus == "two files":
        from .catalogs import parse_catalog, parse_messages

        pairs = parse_catalog(corpus) if form.is_bilingual else parse_messages(corpus)
    else:
        from .xml_formats import parse_tmx, parse_xliff

        pairs = parse_tmx(corpus) if form.name == "tmx" else parse_xliff(corpus)
    return map(CorpusRow, count(1 + corpus.piece.before), pairs)


__all__ = ["ROWS_PER_BATCH", "CorpusRow", "CorpusSpec", "OpenCorpus", "SentencePair"]
__all__ += [
    "WordPair",
    "blank_side_error",
    "content_key",
    "file_format",
    "has_invalid_unicode",
    "load_splits",
]
__all__ += [
    "open_corpus",
    "read_lines",
    "read_pairs",
    "read_rows",
    "read_text_files",
    "stream_lines",
]
__all__ += ["Piece", "split_corpus", "stream_text_files"]
