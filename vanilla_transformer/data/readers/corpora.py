"""Where a corpus is, and how it is opened: its files, its dataset, or what opustools or mtdata
download once.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.formats import FORMAT_OF_ENDING, corpus_endings
from vanilla_transformer.files.hashes import cached_folder, hash_file, hash_open_file
from vanilla_transformer.files.inputs import COMPRESSIONS, compression_of
from vanilla_transformer.files.text_files import file_version, open_file
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.user_input.schemas import Schema
from vanilla_transformer.user_input.user_modules import child_environment

FILE_ENDINGS = corpus_endings("one file")
MESSAGE_ENDINGS = corpus_endings("two files")
_CONVERT_CSV = (
    "from pyarrow import csv, parquet as p; p.write_table(csv.read_csv('A.csv'), 'A.parquet')"
)
_LIBRARIES = ("opus:", "mtdata:")


class SentencePair(NamedTuple):
    """A source sentence and its translation, as raw text."""

    source: str
    target: str


# A word of a source and the word of its translation, counted from 0 between white space
WordPair = tuple[int, int]


class CorpusRow(NamedTuple):
    """A pair, the number of its line or row, from 1, and its score in the corpus, if it has one."""

    number: int
    pair: SentencePair
    score: float | None = None


class CorpusSpec(Schema, frozen=True):
    """
    One corpus of a mix: two parallel text files, one file with both sides, or a dataset.

    Args:
        source, target (`str`): Text files with one sentence per line, or files with messages of
            the same keys, such as `.json`; `.gz`, `.xz`, `.bz2` and `.zst` are decompressed.
        file (`str`):
            A file with both sides, such as `.tsv` (source TAB target, and maybe a score), `.tmx`,
            `.xlf` or `.po`, also compressed; a `.parquet` file; or a `.zip` file of OPUS with a
            text file for each language.
        dataset (`str`):
            A folder written by `datasets.Dataset.save_to_disk`, or a name for
            `datasets.load_dataset`, optionally followed by a colon and a configuration, as in
            `"wmt14:de-en"`. Or a corpus that opustools or mtdata downloads: `"opus:NAME"`,
            `"opus:NAME/RELEASE"` or `"mtdata:IDENTIFIER"`.
        split (`str`): The split of the dataset. What opustools or mtdata download has none.
        source_language, target_language (`str`):
            Keys in the `translation` column of a JSONL file, a Parquet file or a dataset, or names
            of two columns. Without them the columns are `source` and `target`. They also name the
            languages of the two sides where a model has several.
        weight (`float`): How many times each pair occurs in an epoch.
        name (`str`): For messages and `stages`. By default the dataset or the files as the user
            wrote them.
        reverse (`bool`): Translate from the target side to the source side, whose languages keep
            their names.
    """

    noun = "key of a corpus"
    source: str | None = None
    target: str | None = None
    file: str | None = None
    dataset: str | None = None
    split: str = "train"
    source_language: str | None = None
    target_language: str | None = None
    weight: float = Field(1.0, gt=0, lt=1e6, strict=True, title="a number above 0")
    name: str = ""
    reverse: bool = Field(False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("name"):
            return values
        files = f"{values.get('source')} | {values.get('target')}"
        corpus = values.get("dataset") or values.get("file") or files
        return {**values, "name": str(corpus)}

    @model_validator(mode="after")
    def _check_together(self) -> "CorpusSpec":
        if (self.source is None) != (self.target is None):
            side = self.source or self.target
            raise UserError(f"A corpus needs `source` and `target` together, got only {side}.")
        kinds: list[str] = []
        for kind in ("source", "file", "dataset"):
            if getattr(self, kind) is not None:
                kinds.append(f"`{kind}`")
        if len(kinds) != 1:
            got = " and ".join(kinds) or "none of them"
            raise UserError(
                f"A corpus needs `source` and `target`, or `file`, or `dataset`; got {got}."
            )
        if self.file is not None and self.format not in FILE_ENDINGS:
            requirement = f"The name of a `file` must end with {', '.join(FILE_ENDINGS)}"
            compressions = f"({', '.join(COMPRESSIONS)} may follow all but the last two)"
            hint = ""
            if self.format == ".csv":
                hint = f' Convert CSV: python -c "{_CONVERT_CSV}".'
            raise UserError(f"{requirement} {compressions}, got {self.file}.{hint}")
        if self.is_downloaded and self.split != "train":
            raise UserError(
                f"`split` must be left out for {self.dataset}, which is read as a whole, got "
                f"{self.split!r}. Leave it out, and name another corpus for held-out text."
            )
        return self

    @property
    def direction(self) -> Direction:
        """Return the languages from and to which its pairs translate."""
        languages = self.source_language, self.target_language
        return Direction(*reversed(languages)) if self.reverse else Direction(*languages)

    @property
    def files(self) -> list[Path]:
        """Return the paths of its files; a dataset has none."""
        return [Path(path) for path in (self.source, self.target, self.file) if path is not None]

    @property
    def format(self) -> str:
        """Return the suffix of `file` or of two files of messages, without the suffix of a
        compression.
        """
        form = file_format(self.file or self.source or "")
        return form if self.source is None or form in MESSAGE_ENDINGS else ""

    @property
    def is_downloaded(self) -> bool:
        """Return whether `dataset` is an identifier of OPUS or mtdata."""
        return self.dataset is not None and self.dataset.startswith(_LIBRARIES)

    def require_languages(self) -> tuple[str, str]:
        """Return the source and the target language."""
        if self.source_language is None or self.target_language is None:
            missing = "target_language"
            if self.source_language is None:
                missing = "source_language"
            raise UserError(
                f"`{missing}` must be given for {self.name}, which has its languages by their "
                "codes."
            )
        return self.source_language, self.target_language

    def location(self, side: int) -> str:
        """Return where a side (0: source, 1: target) of its pairs is stored, for messages."""
        if self.dataset is not None:
            return f"the dataset {self.dataset}"
        if self.reverse:
            side = 1 - side
        return str(self.files[side % len(self.files)])


def file_format(name: str) -> str:
    """Return the suffix of a file without the suffix of a compression."""
    suffixes = Path(name).suffixes
    if len(suffixes) > 1 and compression_of(name):
        inner = FORMAT_OF_ENDING.get(suffixes[-2])
        if inner is None or not inner.corpus or inner.is_text:
            return suffixes[-2]
    return "".join(suffixes[-1:])


class Piece(NamedTuple):
    """Lines of a corpus: how many precede them, the byte of each file where they begin, and their
    number.
    """

    before: int = 0
    offsets: Sequence[int] = (0, 0)
    lines: int = sys.maxsize


class OpenCorpus(NamedTuple):
    """A corpus with its open files, or with the rows of its dataset."""

    spec: CorpusSpec
    files: list[BufferedReader]
    rows: Any = None
    versions: Sequence[tuple[int, int]] = ()  # of the files when they were opened
    piece: Piece = Piece()  # to read, of files that `split_corpus` splits

    @property
    def format(self) -> str:
        """The format of its files as [`CorpusSpec.format`], also of a downloaded one."""
        return file_format(self.files[0].name) if self.spec.source is None else self.spec.format


@contextmanager
def open_corpus(spec: CorpusSpec) -> Iterator[OpenCorpus]:
    """Open the files or the dataset of a corpus."""
    if spec.dataset is not None and not spec.is_downloaded:
        splits = load_splits(spec.dataset)
        if spec.split not in splits:
            names = ", ".join(map(repr, splits))
            raise UserError(
                f"The dataset {spec.dataset} must have a split {spec.split!r}, it has {names}."
            )
        yield OpenCorpus(spec, [], splits[spec.split])
        return
    paths = [_download(spec)] if spec.is_downloaded else spec.files
    with ExitStack() as stack:
        files = [stack.enter_context(open_file(path)) for path in paths]
        yield OpenCorpus(spec, files, versions=[*map(file_version, files)])


def content_key(corpus: OpenCorpus, cache_dir: Path | None = None) -> list[Any]:
    """Return a JSON value that identifies the content of a corpus and how it is read, not where it
    is stored.

    Args:
        cache_dir: A cache that records the hashes of the files, see [`hash_open_file`].
    """
    spec = corpus.spec
    languages: list[Any] = [spec.source_language, spec.target_language]
    if spec.reverse:
        languages.append("reverse")
    if corpus.rows is None:
        paths = [Path(file.name) for file in corpus.files]
        digests = [hash_open_file(file, cache_dir) for file in corpus.files]
        return [corpus.format, *map(compression_of, paths), *languages, *digests]
    arrow_files = [Path(file["filename"]) for file in corpus.rows.cache_files]
    # A dataset small enough to be held in memory has no files but a fingerprint of its content.
    hashes = [hash_file(path, cache_dir) for path in arrow_files] or [corpus.rows._fingerprint]
    return ["dataset", *languages, *hashes]


def load_splits(name: str) -> dict[str, Any]:
    """Load all splits of a dataset, memory-mapped."""
    import datasets

    try:
        if not Path(name).is_dir():
            return datasets.load_dataset(*name.split(":", maxsplit=1))
        dataset = datasets.load_from_disk(name)
    except (ValueError, OSError) as error:
        requirement = "`dataset` must be a folder written by `save_to_disk` or a name on the Hub"
        raise UserFileError(f"{requirement}, got {name}: {error}") from error
    # A dataset can also be saved without the name of a split.
    return {"train": dataset} if isinstance(dataset, datasets.Dataset) else dataset


# Rows that are read, cleaned, written or searched at a time.
ROWS_PER_BATCH = 10_000
_EXTRA, _FEATURE = "corpora", "Downloading a corpus"
_MOSES_FILE, _TSV_FILE = "corpus.zip", "corpus.tsv"


def usual_cache_dir() -> Path:
    """Return the folder of everything cached, where a recipe names none."""
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE) / "vanilla_transformer"


def _download(spec: CorpusSpec) -> Path:
    """
    Return the file of a corpus whose `dataset` is `opus:NAME`, `opus:NAME/RELEASE` or
    `mtdata:IDENTIFIER`.

    It is downloaded at the first call, into the cache of `datasets`.
    """
    library, _, name = str(spec.dataset).partition(":")
    source, target = spec.require_languages()
    fetch: Callable[..., None] = _download_opus if library == "opus" else _download_mtdata
    entry = f"{library}-{name}-{source}-{target}".replace("/", "-")
    write = partial(fetch, name=name, source=source, target=target)
    name = f"downloads/{entry}"
    entry_folder = cached_folder(usual_cache_dir(), name, write, has_records=True)
    paths = (entry_folder / _MOSES_FILE, entry_folder / _TSV_FILE)
    return next(path for path in paths if path.is_file())


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
        archives, _ = getter.get_corpora_data()
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise UserFileError(f"Cannot look up opus:{name}: {reason}. Check the network.") from error
    languages = f"{source} and {target}"
    if not archives:
        raise UserError(f"OPUS must have the corpus {name} for {languages}, but it has none.")
    count = len(archives)
    if count > 1:
        requirement = f"OPUS must have one archive of {name} for {languages}"
        raise UserError(f"{requirement}, but it has {count}.")
    path = folder / _MOSES_FILE
    failure = f"Cannot download opus:{name}"
    try:
        fetch_file(archives[0]["url"], path)
    except OSError as error:
        raise UserFileError(f"{failure}: {error}. Nothing was written.") from error
    if not zipfile.is_zipfile(path):
        raise UserFileError(f"{failure}: the file is damaged. Nothing was written.")


def _download_mtdata(folder: Path, name: str, source: str, target: str) -> None:
    """Download a corpus by mtdata in another process, since importing it changes the logging of the
    process.
    """
    with requires_extra(_EXTRA, _FEATURE):
        from importlib.metadata import version

        version("mtdata")
    module = "vanilla_transformer.data.readers.mtdata_process"
    words = [sys.executable, "-m", module, name, source, target, str(folder / _TSV_FILE)]
    environment = child_environment()
    result = subprocess.run(
        words, capture_output=True, text=True, errors="replace", env=environment
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        reason = lines[-1] if lines else "no reason was given"
        error = UserError if result.returncode == 2 else UserFileError
        raise error(f"Cannot download mtdata:{name}: {reason}")
