"""
Parquet files, and datasets of the `datasets` library.

Parquet is read by `pyarrow` from the open file, without another copy on disk.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vanilla_transformer.data.tuning import ROWS_PER_BATCH

from .columns import find_columns
from .corpus_spec import CorpusSpec, SentencePair
from .open_corpora import OpenCorpus

if TYPE_CHECKING:
    import pyarrow as pa


def parse_parquet(corpus: OpenCorpus) -> Iterator[SentencePair]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(corpus.files[0]) as file:
            for batch in file.iter_batches(ROWS_PER_BATCH):
                yield from _parse_table(pa.Table.from_batches([batch]), corpus.spec)
    except pa.ArrowInvalid as error:
        raise ValueError(f"Cannot read {corpus.files[0].name}: it must be a Parquet file ({error}).") from error


def parse_dataset(corpus: OpenCorpus) -> Iterator[SentencePair]:
    for table in corpus.rows.with_format("arrow").iter(ROWS_PER_BATCH):
        yield from _parse_table(table, corpus.spec)


def _parse_table(table: "pa.Table", spec: CorpusSpec) -> Iterator[SentencePair]:
    import pyarrow as pa

    nested = "translation" in table.column_names and pa.types.is_struct(table["translation"].type)
    if nested:
        table = pa.Table.from_struct_array(table["translation"])
    location = spec.name if spec.dataset is None else f"The dataset {spec.name}"
    columns = [_column_texts(table[name], spec) for name in find_columns(table.column_names, nested, spec, location)]
    return map(SentencePair, *columns)


def _column_texts(column: "pa.ChunkedArray", spec: CorpusSpec) -> list[str]:
    """Return the sentences of a column, decoded from bytes because Parquet files may hold text that is not UTF-8."""
    import pyarrow as pa

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"{spec.name} must hold sentences, but it has a column of type {column.type}.")
    values = column.cast(pa.large_binary()).to_pylist()
    return ["" if value is None else value.decode("utf-8", errors="surrogateescape").strip() for value in values]
