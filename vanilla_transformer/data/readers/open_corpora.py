"""Open the files or the dataset of a corpus, and identify its content."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.file_utils import hash_file

from .corpus_spec import CorpusSpec, file_format
from .datasets_library import load_split
from .downloads import download
from .lines import COMPRESSIONS, open_file


class OpenCorpus(NamedTuple):
    """A corpus with its open files, or with the rows of its dataset."""

    spec: CorpusSpec
    files: list[BufferedReader]
    rows: Any = None


@contextmanager
def open_corpus(spec: CorpusSpec, streaming: bool = False) -> Iterator[OpenCorpus]:
    """
    Open the files or the dataset of a corpus.

    Args:
        streaming (`bool`): Read a dataset of the Hub while it is downloaded and keep nothing on disk.

    Raises:
        OSError: a file or dataset is missing or cannot be read.
        ValueError: the dataset has no such split.
    """
    if spec.dataset is not None and not spec.is_downloaded:
        yield OpenCorpus(spec, [], load_split(spec, streaming))
        return
    paths = [download(spec)] if spec.is_downloaded else spec.files
    with ExitStack() as stack:
        yield OpenCorpus(spec, [stack.enter_context(open_file(path)) for path in paths])


def content_key(corpus: OpenCorpus) -> list[Any]:
    """Return a JSON value that identifies the content of a corpus and how it is read, not where it is stored."""
    spec = corpus.spec
    languages: list[Any] = [spec.source_language, spec.target_language, *(["reverse"] if spec.reverse else [])]
    if corpus.rows is None:
        paths = [Path(file.name) for file in corpus.files]
        compressions = [path.suffix if path.suffix in COMPRESSIONS else "" for path in paths]
        form = "" if spec.source is not None else file_format(paths[0].name)
        return [form, *compressions, *languages, *map(_hash_open_file, corpus.files)]
    arrow_files = [Path(file["filename"]) for file in corpus.rows.cache_files]
    # A dataset small enough to be held in memory has no files but a fingerprint of its content.
    return ["dataset", *languages, *(map(hash_file, arrow_files) if arrow_files else [corpus.rows._fingerprint])]


def _hash_open_file(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file and rewind it."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return digest
