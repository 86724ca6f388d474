"""Sentence pairs as token ids in Arrow tables, memory-mapped or in memory, tokenized on all
cores.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, overload

import datasets
import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.files.hashes import cached_work, hash_json
from vanilla_transformer.loading.model_folders import mapping
from vanilla_transformer.machine.cores import usable_cores
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

from .batches import IGNORED_LABEL, Batch, BatchShape, round_up
from .packing import pack_pairs
from .readers import ROWS_PER_BATCH, SentencePair, WordPair

# (texts, as_target=False) -> token ids of each text, every one ending with EOS.
Encode = Callable[..., list[list[int]]]

_FORMAT = 1  # of the cached files; another number invalidates all older entries
_MIN_ROWS_PER_PROCESS = 50_000  # with fewer, a second process costs more time than it saves
_LINK_SIZE = 3  # numbers of a link between tokens
TOKEN_FEATURES = {
    name: datasets.Sequence(datasets.Value("int32")) for name in ("input_ids", "labels")
}


class TokenLinks(NamedTuple):
    """
    Links between the tokens of each pair of a text, for guided alignment.

    Attributes:
        dataset: Its column `links` is a part of the table of the tokens, see [`TokenTable`].
        words: The aligned words of each pair, a source word before its target word.
        find: Returns a dataset like `dataset` for other pairs, given their texts and aligned words.
    """

    dataset: datasets.Dataset
    words: "TokenColumn"
    find: Callable[[Sequence[SentencePair], Sequence[set[WordPair]]], datasets.Dataset]


class EncodedPair(NamedTuple):
    """Token ids of a pair, each side ending with EOS."""

    source: list[int]
    target: list[int]


class EncodedPairs(Sequence[EncodedPair]):
    """
    Rows of a table of encoded pairs, in any order and with repetitions.

    Args:
        table (`TokenTable`): The data is not copied.
        rows (`np.ndarray` of shape `(pairs,)`): The rows to use. By default all.

    `source_lengths` and `target_lengths`, of shape `(pairs,)`, count tokens with EOS.
    """

    def __init__(self, table: "TokenTable", rows: np.ndarray | None = None):
        self.table = table
        self.rows = np.arange(len(table)) if rows is None else rows
        self.source_lengths = self.table.sources.lengths()[self.rows]
        self.target_lengths = self.table.targets.lengths()[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> EncodedPair: ...
    @overload
    def __getitem__(self, index: slice) -> "EncodedPairs": ...
    def __getitem__(self, index: int | slice) -> "EncodedPair | EncodedPairs":
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        rows = self.rows[[index]]
        source, _ = self.table.sources.read(rows)
        target, _ = self.table.targets.read(rows)
        return EncodedPair(source.tolist(), target.tolist())

    def select(self, indices: np.ndarray) -> "EncodedPairs":
        """Select pairs by their indices or by a boolean mask."""
        return EncodedPairs(self.table, self.rows[indices])


class TokenTable:
    """
    Token ids of both sides of pairs, read from Arrow without copies.

    Args:
        dataset (`datasets.Dataset`): Columns `input_ids` and `labels`, as returned by
            [`encode_texts`]. With guided alignment there are also `links`: three numbers for each
            link between tokens of a pair, its target token, its source token, and the divisor of
            its weight.
    """

    def __init__(self, dataset: datasets.Dataset):
        self.dataset = dataset
        self.sources = TokenColumn(dataset.data.column("input_ids"))
        self.targets = TokenColumn(dataset.data.column("labels"))
        self.links: TokenColumn | None = None
        if "links" in dataset.column_names:
            self.links = TokenColumn(dataset.data.column("links"))

    def __len__(self) -> int:
        return len(self.dataset)

    def pad(self, rows: np.ndarray, pad_token_id: int, pad_to_multiple_of: int = 1) -> Batch:
        """
        Pad rows on the right to one batch, whose lengths are multiples of `pad_to_multiple_of`.

        `DataCollatorForSeq2Seq` gives the same tensors (a test compares them), but pads on the
        tokenizer's side, which may be the left, where the decoder expects no padding.

        Returns:
            `input_ids` and `attention_mask` of shape `(batch_size, source_length)`, and `labels` of
            shape `(batch_size, target_length)`, -100 at padding. With L links, also `link_places`,
            of shape `(L,)`, in a flattened `(batch_size, target_length, source_length)`, and
            `link_weights`, of the same shape.
        """
        input_ids, mask = _pad(*self.sources.read(rows), pad_token_id, pad_to_multiple_of)
        labels, _ = _pad(*self.targets.read(rows), IGNORED_LABEL, pad_to_multiple_of)
        arrays = {"input_ids": input_ids, "attention_mask": mask.astype(np.int64), "labels": labels}
        if self.links is not None:
            first_targets = np.arange(0, labels.size, labels.shape[1])
            firsts = (first_targets, np.zeros_like(first_targets))
            values, sizes = self.links.read(rows)
            arrays |= _place_links(values, sizes, *firsts, input_ids.shape[1])
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def max_links(self, max_tokens: int) -> int:
        """Return an upper bound of the links of a batch of up to `max_tokens` tokens on either
        side, with padding.
        """
        if self.links is None:
            return 0
        longest = np.maximum(self.sources.lengths(), self.targets.lengths())
        links_per_token = self.links.lengths() // _LINK_SIZE / longest
        return max_tokens * (1 + math.ceil(links_per_token.max(initial=0.0)))

    def pack(
        self, rows: np.ndarray, places: np.ndarray, shape: BatchShape, pad_token_id: int
    ) -> Batch:
        """
        Put rows one after another into the rows of a packed batch.

        Args:
            places (`np.ndarray` of shape `(rows,)`): The row of the batch for each row of the
            table, ascending.

        Returns:
            The tensors of [`pack_pairs`] and, with links, `link_places` and `link_weights` as from
            [`pad`], with links of weight 0 up to a multiple of the labels: few shapes.
        """
        pairs = self.sources.read(rows), self.targets.read(rows)
        arrays, first_sources, first_targets = pack_pairs(*pairs, places, shape, pad_token_id)
        if self.links is not None:
            first_sources %= shape.source_length
            firsts = (first_targets, first_sources)
            values, sizes = self.links.read(rows)
            links = _place_links(values, sizes, *firsts, shape.source_length)
            multiple = arrays["labels"].size
            for name, array in links.items():
                arrays[name] = np.pad(array, (0, -len(array) % multiple))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def __reduce__(self) -> tuple[type, tuple[datasets.Dataset]]:
        # A memory-mapped dataset is pickled as the names of its files; the arrays would be pickled
        # as copies.
        return TokenTable, (self.dataset,)


class TokenColumn:
    """A column of lists as flat arrays: indexing a `datasets.Dataset`, in any format, takes 0.1 ms
    per row.
    """

    def __init__(self, column: pa.ChunkedArray):
        self._tokens: list[np.ndarray] = []
        self._offsets: list[np.ndarray] = []
        for chunk in column.chunks:
            self._tokens.append(chunk.values.to_numpy(zero_copy_only=True))
            self._offsets.append(chunk.offsets.to_numpy(zero_copy_only=True))
        self._first_rows = np.cumsum([0, *map(len, column.chunks)])[:-1]

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each row, shape `(rows,)`."""
        lengths = [np.empty(0, np.int32)]
        lengths += [np.diff(offsets) for offsets in self._offsets]
        return np.concatenate(lengths).astype(np.int32)

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of all `rows`, one after another, and the number of tokens of each
        row.
        """
        chunks = np.searchsorted(self._first_rows, rows, side="right") - 1
        rows_of_chunks = rows - self._first_rows[chunks]
        token_ids = [np.empty(0, np.int32)]
        for chunk, row in zip(chunks.tolist(), rows_of_chunks.tolist(), strict=True):
            offsets = self._offsets[chunk]
            token_ids.append(self._tokens[chunk][offsets[row] : offsets[row + 1]])
        sizes = [*map(len, token_ids[1:])]
        return np.concatenate(token_ids), np.array(sizes, np.int64)


def _pad(
    tokens: np.ndarray, lengths: np.ndarray, value: int, multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the padded rows, int64 of shape `(rows, longest)`, and a mask that is True at
    tokens.
    """
    longest = round_up(int(lengths.max(initial=0)), multiple)
    mask = np.arange(longest) < lengths[:, None]
    padded = np.full(mask.shape, value, np.int64)
    padded[mask] = tokens
    return padded, mask


def _place_links(
    values: np.ndarray,
    sizes: np.ndarray,
    first_targets: np.ndarray,
    first_sources: np.ndarray,
    source_length: int,
) -> dict[str, np.ndarray]:
    """Return the links of pairs, given the index of each first target in the batch and first source
    in its row.
    """
    target, source, divisor = values.astype(np.int64).reshape(-1, _LINK_SIZE).T
    pair = np.repeat(np.arange(len(sizes)), sizes // _LINK_SIZE)
    target_places = first_targets[pair] + target
    places = target_places * source_length + first_sources[pair] + source
    weights = np.float32(1.0) / divisor.astype(np.float32)
    return {"link_places": places, "link_weights": weights}


def encode_pairs(
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[SentencePair],
    direction: Direction = NO_DIRECTION,
) -> list[EncodedPair]:
    """Return the token ids of each pair, both sides ending with EOS."""
    sources = encode_sentences(tokenizer, [pair.source for pair in pairs])
    targets = encode_sentences(tokenizer, [pair.target for pair in pairs], as_target=True)
    languages = find_languages(tokenizer)
    if languages is not None:
        tokens = languages.tokens(direction)
        sources = languages.begin(sources, tokens.source)
        targets = languages.begin(targets, tokens.target)
    return [EncodedPair(source, target) for source, target in zip(sources, targets, strict=True)]


def to_dataset(pairs: Sequence[EncodedPair]) -> datasets.Dataset:
    """Return encoded pairs as a dataset in memory: `input_ids` and `labels`."""
    sources = [pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    columns = {"input_ids": sources, "labels": targets}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(TOKEN_FEATURES))


def encode_sides(batch: dict[str, list[str]], encode: Encode) -> dict[str, list[list[int]]]:
    """Return the token ids of the columns `source` and `target`, for [`encode_texts`]."""
    sources = encode(batch["source"])
    targets = encode(batch["target"], as_target=True)
    return {"input_ids": sources, "labels": targets}


def encode_texts(
    texts: datasets.Dataset,
    encode_batch: Callable[..., dict[str, list]],
    num_proc: int | None = None,
    file: Path | None = None,
    with_indices: bool = False,
    features: datasets.Features | None = None,
) -> datasets.Dataset:
    """
    Tokenize texts, row by row.

    Args:
        encode_batch: A picklable function of a batch of columns and, optionally, of its row
            indices.
        num_proc (`int`): Number of processes. By default all cores, if the text is long enough.
        file (`Path`): Write to this file, or to several files of similar names. By default nothing
            is written.
        features: The columns that `encode_batch` returns. By default the tokens of both sides.
    """
    return texts.map(
        encode_batch,
        with_indices=with_indices,
        batched=True,
        remove_columns=texts.column_names,
        features=features or datasets.Features(TOKEN_FEATURES),
        num_proc=choose_num_proc(len(texts), num_proc),
        writer_batch_size=ROWS_PER_BATCH,
        keep_in_memory=file is None,
        cache_file_name=None if file is None else str(file),
        load_from_cache_file=False,
        # Without it `datasets` would hash the function and its tokenizer.
        new_fingerprint=hash_json(str(file)),
        desc="Tokenizing",
    )


def choose_num_proc(rows: int, wanted: int | None = None) -> int | None:
    """Return a number of processes for `datasets`, by default all cores if there are many rows."""
    processes = wanted or min(usable_cores(), rows // _MIN_ROWS_PER_PROCESS)
    return processes if processes > 1 else None


def encode_texts_cached(
    texts: datasets.Dataset, texts_key: str, encode: Encode, encode_key: str, cache_dir: Path
) -> datasets.Dataset:
    """
    Return the result of `encode_texts`, memory-mapped, and compute it only if the cache does not
    hold it.

    Args:
        texts_key, encode_key (`str`): Hashes that identify the content of `texts`, and `encode`.
    """

    def write(folder: Path) -> None:
        encode_batch = partial(encode_sides, encode=encode)
        encode_texts(texts, encode_batch, file=folder / "encoded.arrow")

    content = (_FORMAT, texts_key, encode_key)
    return open_arrow_files(cached_work(cache_dir, "encoded", content, write))


def open_arrow_files(folder: Path) -> datasets.Dataset:
    """Open the Arrow files of a folder, sorted by name, as one memory-mapped dataset."""
    paths = sorted(folder.glob("*.arrow"))
    with mapping(folder):
        parts = [datasets.Dataset.from_file(str(path)) for path in paths]
        return datasets.concatenate_datasets(parts)
