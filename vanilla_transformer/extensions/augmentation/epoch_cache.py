"""The changed text of an epoch, which one process of a machine makes for all of them."""

import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from vanilla_transformer.data.tokenized_corpus import (
    choose_num_proc,
    encode_texts,
    open_arrow_files,
)
from vanilla_transformer.files.hashes import cached_work


class EpochCache:
    """
    The changed rows of the current epoch.

    If an epoch changes many rows, one process makes them on all its cores, and all processes with
    the same `cache_dir` map its files. The entry of the epoch before is deleted.

    Args:
        kind: The beginning of the name of an entry.
        content: JSON values, or hashes, that decide the changes, beside the epoch and its rows.
    """

    def __init__(self, cache_dir: Path, kind: str, content: Sequence[Any]):
        self.cache_dir = cache_dir
        self.kind = kind
        self.content = content
        self._folder: Path | None = None

    def encode(
        self,
        texts: datasets.Dataset,
        rows: np.ndarray,
        epoch: int,
        encode_batch: Callable[..., dict[str, list]],
        features: datasets.Features | None = None,
    ) -> datasets.Dataset:
        """
        Return the results of a function for the texts of an epoch, in memory or mapped.

        Args:
            rows: The rows of all pairs of the epoch.
            encode_batch, features: See [`encode_texts`]. The function gets the indices of the
                texts, too.
        """
        if choose_num_proc(len(texts)) is None:
            return encode_texts(texts, encode_batch, with_indices=True, features=features)

        def write(folder: Path) -> None:
            file = folder / "encoded.arrow"
            encode_texts(texts, encode_batch, file=file, with_indices=True, features=features)

        content = (*self.content, epoch, sha256(rows.data).hexdigest())
        folder = cached_work(self.cache_dir, self.kind, content, write)
        changed = open_arrow_files(folder)
        if self._folder is not None and self._folder != folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = folder
        return changed
