"""Readers of parallel text: text files, TSV, JSONL and Parquet files, and datasets of the `datasets` library.

Own code reads TSV and JSONL because `datasets` names no line in its errors and stops at the first invalid byte, which
`drop_invalid_unicode` has to survive. Parquet is read by `pyarrow` from the open file, without another copy on disk.
"""

import gzip
import hashlib
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.file_utils import hash_file

from .tuning import ROWS_PER_BATCH

if TYPE_CHECKING:
    import pyarrow as pa

_COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_CORRUPT = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")


class SentencePair(NamedTuple):
    """A source sentence and its translation, as raw text."""

    source: str
    target: str


@dataclass(frozen=True)
class CorpusSpec:
    """
    One corpus of a mix: two parallel text files, one file with both sides, or a dataset.

    Args:
        source, target (`str`): Text files with one sentence per line; `.gz` and `.xz` files are decompressed.
        file (`str`): A `.tsv` (source TAB target, no header), `.jsonl` (both also `.gz` or `.xz`) or `.parquet` file.
        dataset (`str`):
            A folder written by `datasets.Dataset.save_to_disk`, or a name for `datasets.load_dataset`, optionally
            followed by a colon and a configuration, as in `"wmt14:de-en"`.
        split (`str`): The split of the dataset.
        source_language, target_language (`str`):
            Keys in the `translation` column of a JSONL file, a Parquet file or a dataset, or names of two columns.
            Without them the columns are `source` and `target`.
        weight (`float`): How many times each pair occurs in an epoch; for streams, the corpus's share of the mix.

    Raises:
        ValueError: the spec names none or several of the three kinds, an unknown format, or an invalid weight.
    """

    source: str | None = None
    target: str | None = None
    file: str | None = None
    dataset: str | None = None
    split: str = "train"
    source_language: str | None = None
    target_language: str | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        texts = {name: value for name, value in vars(self).items() if name != "weight" and value is not None}
        wrong = [name for name, value in texts.items() if not isinstance(value, str)]
        if wrong:
            raise ValueError(f"`{wrong[0]}` of a corpus must be text, got {texts[wrong[0]]!r}.")
        if (self.source is None) != (self.target is None):
            raise ValueError(f"A corpus needs `source` and `target` together, got only {self.source or self.target}.")
        kinds = [kind for kind in ("source", "file", "dataset") if kind in texts]
        if len(kinds) != 1:
            got = " and ".join(f"`{kind}`" for kind in kinds) or "none of them"
            raise ValueError(f"A corpus needs `source` and `target`, or `file`, or `dataset`; got {got}.")
        if self.file is not None and self.format not in _PARSERS:
            raise ValueError(
                f"The name of a `file` must end with {', '.join(_PARSERS)} (.gz or .xz may follow the first two), "
                f"got {self.file}."
            )
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float) or not 0 < self.weight < 1e6:
            raise ValueError(f"`weight` of the corpus {self.name} must be a number above 0, got {self.weight!r}.")

    @property
    def name(self) -> str:
        """Return the name of the corpus as the user wrote it."""
        return self.dataset or self.file or f"{self.source} | {self.target}"

    @property
    def files(self) -> list[Path]:
        """Return the paths of its files; a dataset has none."""
        return [Path(path) for path in (self.source, self.target, self.file) if path is not None]

    @property
    def format(self) -> str:
        """Return the suffix of `file` without the suffix of a compression."""
        suffixes = Path(self.file or "").suffixes
        compressed = len(suffixes) > 1 and suffixes[-1] in _COMPRESSIONS and suffixes[-2] != ".parquet"
        return "".join(suffixes[-2:-1] if compressed else suffixes[-1:])

    def location(self, side: int) -> str:
        """Return where a side (0: source, 1: target) of its pairs is stored, for messages."""
        return f"the dataset {self.dataset}" if self.dataset is not None else str(self.files[side % len(self.files)])


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
    if spec.dataset is not None:
        yield OpenCorpus(spec, [], load_split(spec, streaming))
        return
    with ExitStack() as stack:
        yield OpenCorpus(spec, [stack.enter_context(_open_file(path)) for path in spec.files])


def read_pairs(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Yield the pairs of a corpus, one per line or row, before cleaning.

    A side may be blank. Bytes that are not UTF-8 become lone surrogates (PEP 383), which the cleaning rules find.

    Raises:
        ValueError: a file is empty or corrupt, the numbers of lines differ, or a line or row does not hold a pair.
    """
    if corpus.spec.dataset is not None:
        return _parse_dataset(corpus)
    return _parse_parallel_lines(corpus) if corpus.spec.file is None else _PARSERS[corpus.spec.format](corpus)


def content_key(corpus: OpenCorpus) -> list[Any]:
    """Return a JSON value that identifies the content of a corpus and how it is read, not where it is stored."""
    spec = corpus.spec
    languages = [spec.source_language, spec.target_language]
    if spec.dataset is None:
        compressions = [path.suffix if path.suffix in _COMPRESSIONS else "" for path in spec.files]
        return [spec.format, *compressions, *languages, *map(_hash_open_file, corpus.files)]
    arrow_files = [Path(file["filename"]) for file in corpus.rows.cache_files]
    # A dataset small enough to be held in memory has no files but a fingerprint of its content.
    return ["dataset", *languages, *(map(hash_file, arrow_files) if arrow_files else [corpus.rows._fingerprint])]


def _hash_open_file(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file and rewind it."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return digest


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


def stream_lines(path: str | Path) -> Iterator[str]:
    """
    Yield the lines of a UTF-8 text file, without their ends. Only line feeds end a line, as for `wc -l`.

    Raises:
        OSError: there is no such file.
        ValueError: it is empty, corrupt or not UTF-8 (with the line).
    """
    with _open_file(Path(path)) as file:
        for number, line in enumerate(_decode_lines(file), start=1):
            if has_invalid_unicode(line):
                raise invalid_unicode_error(number, path, line)
            yield line.removesuffix("\r")


def read_lines(path: str | Path) -> list[str]:
    """
    Read the lines of a UTF-8 text file and strip white space. Only line feeds end a line, as for `wc -l`.

    Raises:
        OSError: there is no such file.
        ValueError: it is empty, corrupt or not UTF-8 (with the line).
    """
    return [line.strip() for line in stream_lines(path)]


def stream_text_files(source_file: str | Path, target_file: str | Path) -> Iterator[SentencePair]:
    """
    Yield the pairs of two parallel UTF-8 files one by one, without white space at the ends. A side may be blank.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is empty or not UTF-8 (with the line), or the numbers of lines differ.
    """
    with open_corpus(CorpusSpec(source=str(source_file), target=str(target_file))) as corpus:
        for number, pair in enumerate(read_pairs(corpus), start=1):
            for path, text in zip((source_file, target_file), pair, strict=True):
                if has_invalid_unicode(text):
                    raise invalid_unicode_error(number, path, text)
            yield pair


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


def has_invalid_unicode(text: str) -> bool:
    """Return whether `text` holds surrogates, which UTF-8 cannot encode and which stand for invalid bytes here."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def escape_invalid_unicode(text: str) -> str:
    """Replace what UTF-8 cannot encode by escape sequences such as `\\xe4`."""
    return _SURROGATE.sub(lambda found: ascii(found[0])[1:-1].replace("\\udc", "\\x"), text)


def invalid_unicode_error(number: int, location: str | Path, text: str) -> ValueError:
    """Return the error for a line or row that is not valid Unicode."""
    code_point = ord(_SURROGATE.findall(text)[0])
    is_byte = 0xDC80 <= code_point <= 0xDCFF
    found = f"the byte 0x{code_point - 0xDC00:02x}" if is_byte else f"U+{code_point:04X}"
    return ValueError(
        f"{location} must be UTF-8, but line {number} has {found} where none can be. Convert the file, for example "
        "with `iconv -f latin1 -t utf-8`, or leave such pairs out by `drop_invalid_unicode`."
    )


def blank_side_error(number: int, location: str | Path) -> ValueError:
    """Return the error for a line or row without text on one side."""
    return ValueError(
        f"Line {number} of {location} is blank, but its translation is not. Mend or delete both, or leave such pairs "
        "out by `drop_empty`."
    )


def _open_file(path: Path) -> BufferedReader:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Give the path of a text file with one sentence per line.")
    return path.open("rb")


def _decompressed_lines(file: BufferedReader) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed as its name requires."""
    path = Path(file.name)
    try:
        yield from _COMPRESSIONS[path.suffix](file) if path.suffix in _COMPRESSIONS else file
    except _CORRUPT as error:
        raise ValueError(f"Cannot read {path}: the {path.suffix} file is truncated or corrupt ({error}).") from error


def _decode_lines(file: BufferedReader) -> Iterator[str]:
    """Yield lines without their line feeds; bytes that are not UTF-8 become lone surrogates."""
    lines = _decompressed_lines(file)
    leading = []  # lines up to the first that is not blank
    for line in lines:
        leading.append(line)
        if line.strip():
            break
    else:
        raise ValueError(f"{file.name} is empty. It must have one sentence per line.")
    leading[0] = leading[0].removeprefix(_BYTE_ORDER_MARK)
    for line in chain(leading, lines):
        yield line.removesuffix(b"\n").decode("utf-8", errors="surrogateescape")


def _parse_parallel_lines(corpus: OpenCorpus) -> Iterator[SentencePair]:
    sources, targets = map(_decode_lines, corpus.files)
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in chain(sources, targets))
            counts = [number, number + rest] if source is None else [number + rest, number]
            raise _different_line_counts(corpus.spec.files[0], counts[0], corpus.spec.files[1], counts[1])
        yield SentencePair(source.strip(), target.strip())


def _different_line_counts(source_file: Any, sources: int, target_file: Any, targets: int) -> ValueError:
    return ValueError(
        f"Both sides must have the same number of lines, got {sources} in {source_file} and {targets} in "
        f"{target_file}."
    )


def _parse_tsv(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Parse source TAB target. Quotation marks are part of the sentences."""
    for number, line in enumerate(_decode_lines(corpus.files[0]), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            raise ValueError(
                f"Line {number} of {corpus.spec.file} must have two columns, source TAB target, it has {len(columns)}."
            )
        yield SentencePair(columns[0].strip(), columns[1].strip())


def _parse_jsonl(corpus: OpenCorpus) -> Iterator[SentencePair]:
    for number, line in enumerate(_decode_lines(corpus.files[0]), start=1):
        location = f"Line {number} of {corpus.spec.file}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{location} must be JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{location} must be a JSON object, got {type(row).__name__}.")
        texts = row.get("translation", row)
        if not isinstance(texts, dict):
            raise ValueError(f"{location} must have sentences by language in its `translation`, got {texts!r}.")
        source, target = _find_columns(texts, "translation" in row, corpus.spec, location)
        yield SentencePair(_json_text(texts[source], location), _json_text(texts[target], location))


def _json_text(value: Any, location: str) -> str:
    """Return a sentence of a row; null is a missing sentence."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{location} must hold sentences, got {value!r}.")
    return value.strip()


def _parse_parquet(corpus: OpenCorpus) -> Iterator[SentencePair]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(corpus.files[0]) as file:
            for batch in file.iter_batches(ROWS_PER_BATCH):
                yield from _parse_table(pa.Table.from_batches([batch]), corpus.spec)
    except pa.ArrowInvalid as error:
        raise ValueError(f"Cannot read {corpus.spec.file}: it must be a Parquet file ({error}).") from error


def _parse_dataset(corpus: OpenCorpus) -> Iterator[SentencePair]:
    for table in corpus.rows.with_format("arrow").iter(ROWS_PER_BATCH):
        yield from _parse_table(table, corpus.spec)


def _parse_table(table: "pa.Table", spec: CorpusSpec) -> Iterator[SentencePair]:
    import pyarrow as pa

    nested = "translation" in table.column_names and pa.types.is_struct(table["translation"].type)
    if nested:
        table = pa.Table.from_struct_array(table["translation"])
    location = spec.name if spec.dataset is None else f"The dataset {spec.name}"
    columns = [_column_texts(table[name], spec) for name in _find_columns(table.column_names, nested, spec, location)]
    return map(SentencePair, *columns)


def _column_texts(column: "pa.ChunkedArray", spec: CorpusSpec) -> list[str]:
    """Return the sentences of a column, decoded from bytes because Parquet files may hold text that is not UTF-8."""
    import pyarrow as pa

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"{spec.name} must hold sentences, but it has a column of type {column.type}.")
    values = column.cast(pa.large_binary()).to_pylist()
    return ["" if value is None else value.decode("utf-8", errors="surrogateescape").strip() for value in values]


def _find_columns(names: Iterable[str], nested: bool, spec: CorpusSpec, location: str) -> tuple[str, str]:
    """Return which columns, or which languages of a `translation`, are source and target."""
    names = list(names)
    languages = [language for language in (spec.source_language, spec.target_language) if language is not None]
    for sides in (languages, ["source", "target"]):
        if len(sides) == 2 and set(sides) <= set(names):
            return sides[0], sides[1]
    found = ", ".join(map(repr, sorted(names) if nested else names))
    if nested and len(languages) < 2:
        raise ValueError(f"{location} needs `source_language` and `target_language`, two of {found}.")
    if nested:
        missing = next(language for language in languages if language not in names)
        raise ValueError(f"{location} has no language {missing!r}, it has {found}.")
    raise ValueError(
        f"{location} must have a column 'translation', it has {found}. Columns named as the two languages, or "
        "'source' and 'target', will do as well."
    )


# Parsers by the suffix of `file`.
_PARSERS = {".tsv": _parse_tsv, ".jsonl": _parse_jsonl, ".parquet": _parse_parquet}
