"""Find and open a corpus: its files, its dataset, or what opustools or mtdata download once."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.file_utils import cached_folder, hash_file
from vanilla_transformer.import_utils import requires_extra

from .corpus_spec import CorpusSpec, file_format
from .text_files import COMPRESSIONS, open_file


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
    paths = [_download(spec)] if spec.is_downloaded else spec.files
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


def load_splits(name: str, streaming: bool = False) -> dict[str, Any]:
    """
    Load all splits of a dataset, memory-mapped (or streamed from the Hub).

    Raises:
        OSError: the dataset cannot be found or read.
    """
    import datasets

    if not Path(name).is_dir():
        return datasets.load_dataset(*name.split(":", maxsplit=1), streaming=streaming)
    try:
        found = datasets.load_from_disk(name)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"`dataset` must be a folder written by `save_to_disk` or a name on the Hub, got the folder {name}."
        ) from None
    # A dataset can also be saved without the name of a split.
    return {"train": found} if isinstance(found, datasets.Dataset) else found


def load_split(spec: CorpusSpec, streaming: bool = False) -> Any:
    """
    Load the split of a dataset that a corpus names.

    Raises:
        ValueError: there is no such split; the message lists the existing ones.
        OSError: the dataset cannot be found or read.
    """
    assert spec.dataset is not None
    found = load_splits(spec.dataset, streaming)
    if spec.split not in found:
        raise ValueError(
            f"The dataset {spec.dataset} must have a split {spec.split!r}, it has {', '.join(map(repr, found))}."
        )
    return found[spec.split]


# Rows that are read, cleaned, written or searched at a time.
ROWS_PER_BATCH = 10_000
# With fewer rows a second process costs more time than it saves.
MIN_ROWS_PER_PROCESS = 50_000
_EXTRA, _FEATURE = "corpora", "Downloading a corpus"
_MOSES_FILE, _TSV_FILE = "corpus.zip", "corpus.tsv"


def _download(spec: CorpusSpec) -> Path:
    """
    Return the file of a corpus whose `dataset` is `opus:NAME`, `opus:NAME/RELEASE` or `mtdata:IDENTIFIER`.

    It is downloaded at the first call, into the cache of `datasets`.

    Raises:
        ValueError: the languages are not given, or the library knows no such corpus.
        OSError: the library is not installed, or the corpus cannot be downloaded.
    """
    library, _, name = str(spec.dataset).partition(":")
    source, target = spec.require_languages()
    fetch: Callable[..., None] = _download_opus if library == "opus" else _download_mtdata
    import datasets

    folder = Path(datasets.config.HF_DATASETS_CACHE) / "vanilla_transformer" / "downloads"
    entry = f"{library}-{name}-{source}-{target}".replace("/", "-")
    found = cached_folder(folder, entry, partial(fetch, name=name, source=source, target=target))
    return next(path for file in (_MOSES_FILE, _TSV_FILE) if (path := found / file).is_file())


def _download_opus(folder: Path, name: str, source: str, target: str) -> None:
    """Download the Moses archive of a corpus, which opustools finds."""
    from vanilla_transformer.data.download import fetch_file

    with requires_extra(_EXTRA, _FEATURE):
        from opustools import OpusGet
    corpus, _, release = name.partition("/")
    getter = OpusGet(
        source=source,
        target=target,
        directory=corpus,
        release=release or "latest",
        preprocess="moses",
        download_dir=str(folder),
        suppress_prompts=True,
    )
    try:
        found, _ = getter.get_corpora_data()
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise OSError(f"Cannot look up opus:{name}: {reason}. Check the network.") from error
    if not found:
        raise ValueError(f"OPUS must have the corpus {name} for {source} and {target}, but it has none.")
    if len(found) > 1:
        raise ValueError(f"OPUS must have one archive of {name} for {source} and {target}, but it has {len(found)}.")
    try:
        fetch_file(found[0]["url"], folder / _MOSES_FILE)
    except OSError as error:
        raise OSError(f"Cannot download opus:{name}: {error}. Nothing was written.") from error
    if not zipfile.is_zipfile(folder / _MOSES_FILE):
        raise OSError(f"Cannot download opus:{name}: the file is damaged. Nothing was written.")


def _download_mtdata(folder: Path, name: str, source: str, target: str) -> None:
    """Download a corpus by mtdata in another process, since importing it changes the logging of the process."""
    with requires_extra(_EXTRA, _FEATURE):
        from importlib.metadata import version

        version("mtdata")
    module = "vanilla_transformer.data.readers.mtdata_process"
    words = [sys.executable, "-m", module, name, source, target, str(folder / _TSV_FILE)]
    result = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason was given"])[-1]
        error = ValueError if result.returncode == 2 else OSError
        raise error(f"Cannot download mtdata:{name}: {reason}")
