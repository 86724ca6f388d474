"""Pairs as token ids in Arrow tables: memory-mapped or in memory, made on all cores with a bar that shows progress."""

import json
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

import datasets
import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.tokenization_vanilla_transformer import encode_sentences

from .cache import cached, digest, file_digests
from .readers import SentencePair

# Token ids of each text, every one ending with EOS.
Encode = Callable[[list[str]], list[list[int]]]

_FORMAT = 1  # of an entry's files; another number makes all old entries unknown
_FEATURES = {name: datasets.Sequence(datasets.Value("int32")) for name in ("input_ids", "labels")}
_ROWS_A_PROCESS = 50_000  # below so many a second process costs more time than it saves
_ROWS_A_WRITE = 10_000


class EncodedPair(NamedTuple):
    """Token ids of a pair, each side ending with EOS."""

    source: list[int]
    target: list[int]


class EncodedPairs(Sequence[EncodedPair]):
    """
    Rows of a table of encoded pairs, in any order and any number of times.

    Args:
        dataset (`datasets.Dataset`):
            Columns `input_ids` and `labels`, as [`encode_texts`] makes them. It stays where it is, on disk or not.
        rows (`np.ndarray` of shape `(pairs,)`): Which of its rows these are. By default all.

    `source_lengths` and `target_lengths`, of shape `(pairs,)`, count tokens with EOS.
    """

    def __init__(self, dataset: datasets.Dataset, rows: np.ndarray | None = None):
        self.dataset = dataset
        self.rows = np.arange(len(dataset)) if rows is None else rows
        self._open()

    def _open(self) -> None:
        self._sources = _TokenColumn(self.dataset.data.column("input_ids"))
        self._targets = _TokenColumn(self.dataset.data.column("labels"))
        self.source_lengths = self._sources.lengths()[self.rows]
        self.target_lengths = self._targets.lengths()[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> EncodedPair: ...
    @overload
    def __getitem__(self, index: slice) -> "EncodedPairs": ...
    def __getitem__(self, index: int | slice) -> "EncodedPair | EncodedPairs":
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        row = int(self.rows[index])
        return EncodedPair(self._sources[row], self._targets[row])

    def select(self, indices: np.ndarray) -> "EncodedPairs":
        """Some of these pairs, by their numbers or by a mask."""
        return EncodedPairs(self.dataset, self.rows[indices])

    def __getstate__(self) -> dict[str, Any]:
        # A memory-mapped dataset travels to another process as the names of its files, its arrays would as copies.
        return {"dataset": self.dataset, "rows": self.rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


class _TokenColumn:
    """Fast access to a column of lists, without a copy: `datasets` takes a tenth of a millisecond for each row."""

    def __init__(self, column: pa.ChunkedArray):
        self._values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in column.chunks]
        self._offsets = [chunk.offsets.to_numpy(zero_copy_only=True) for chunk in column.chunks]
        self._first_rows = [0, *np.cumsum([len(chunk) for chunk in column.chunks]).tolist()]

    def __getitem__(self, row: int) -> list[int]:
        chunk = bisect_right(self._first_rows, row) - 1
        first, end = self._offsets[chunk][row - self._first_rows[chunk] :][:2]
        return self._values[chunk][first:end].tolist()

    def lengths(self) -> np.ndarray:
        """Tokens of each row, shape `(rows,)`."""
        return np.concatenate([np.diff(offsets) for offsets in self._offsets] or [[]]).astype(np.int32)


def encode_texts(
    texts: datasets.Dataset, encode: Encode, num_proc: int | None = None, file: Path | None = None
) -> datasets.Dataset:
    """
    Token ids of the columns `source` and `target`, row for row.

    Args:
        encode: Token ids of texts; given to other processes, so that it must be possible to pickle it.
        num_proc (`int`): How many processes share the work. By default all cores, where there is work for them.
        file (`Path`): Write there, or to several files of like name. By default nothing is written.
    """
    return map_texts(texts, partial(_encode_batch, encode=encode), num_proc, file)


def map_texts(
    texts: datasets.Dataset,
    encode_batch: Callable[..., dict[str, list[list[int]]]],
    num_proc: int | None = None,
    file: Path | None = None,
    with_indices: bool = False,
) -> datasets.Dataset:
    """What `encode_texts` does, by a function of whole batches of columns and, if it is asked for, of row numbers."""
    cores = num_proc or min(usable_cores(), len(texts) // _ROWS_A_PROCESS)
    return texts.map(
        encode_batch,
        with_indices=with_indices,
        batched=True,
        remove_columns=texts.column_names,
        features=datasets.Features(_FEATURES),
        num_proc=cores if cores > 1 else None,
        writer_batch_size=_ROWS_A_WRITE,
        keep_in_memory=file is None,
        cache_file_name=None if file is None else str(file),
        load_from_cache_file=False,
        new_fingerprint=digest(str(file)),  # without it the function is hashed, the tokenizer and all
        desc="Tokenizing",
    )


def _encode_batch(batch: dict[str, list[str]], encode: Encode) -> dict[str, list[list[int]]]:
    return {"input_ids": encode(batch["source"]), "labels": encode(batch["target"])}


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cached_encoding(
    texts: datasets.Dataset, texts_key: str, encode: Encode, encode_key: str, cache_dir: Path, num_proc: int | None
) -> datasets.Dataset:
    """
    What `encode_texts` gives, memory-mapped, from the cache where it is there.

    Args:
        texts_key, encode_key (`str`): What stands for the content of `texts`, and for `encode`.
    """

    def write(folder: Path) -> None:
        encode_texts(texts, encode, num_proc, folder / "encoded.arrow")

    return open_arrow_files(cached(cache_dir, f"encoded-{digest(_FORMAT, texts_key, encode_key)}", write))


def open_arrow_files(folder: Path) -> datasets.Dataset:
    """The Arrow files of a folder as one memory-mapped dataset, in the order of their names."""
    return datasets.concatenate_datasets(
        [datasets.Dataset.from_file(str(path)) for path in sorted(folder.glob("*.arrow"))]
    )


def encode_pairs(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[SentencePair]) -> list[EncodedPair]:
    """Token ids of each pair, both sides ending with EOS."""
    sources = encode_sentences(tokenizer, [pair.source for pair in pairs])
    targets = encode_sentences(tokenizer, [pair.target for pair in pairs])
    return [EncodedPair(source, target) for source, target in zip(sources, targets, strict=True)]


def tokenizer_key(tokenizer: PreTrainedTokenizerBase) -> str:
    """What stands for a tokenizer: two with the same key give the same ids."""
    symbol = tokenizer.eos_token_id
    if not tokenizer.is_fast:
        with tempfile.TemporaryDirectory() as folder:
            files = sorted({Path(path) for path in tokenizer.save_pretrained(folder)})
            return digest(symbol, [path.name for path in files], file_digests(files))
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # What the last call set, not what the tokenizer is.
    return digest(symbol, {name: value for name, value in state.items() if name not in ("padding", "truncation")})
