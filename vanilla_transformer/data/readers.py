"""Parallel text from files or from a dataset of the `datasets` library, checked while it is read."""

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

_COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
_ROWS_AT_ONCE = 10_000


class SentencePair(NamedTuple):
    """A source sentence and its translation, as raw text."""

    source: str
    target: str


@dataclass(frozen=True)
class CorpusSpec:
    """
    One corpus of a mix: a pair of text files, one file that holds both sides, or a dataset.

    Args:
        source, target (`str`): Text files, line by line; `.gz` and `.xz` are unpacked while reading.
        file (`str`): A `.tsv` (source TAB target, no header), `.jsonl` (either with `.gz` or `.xz`) or `.parquet`.
        dataset (`str`):
            A folder of `datasets.Dataset.save_to_disk`, or what `datasets.load_dataset` takes; there a configuration
            may follow a colon, as in `"wmt14:de-en"`.
        split (`str`): Which part of the dataset.
        source_language, target_language (`str`):
            Keys in the column `translation` of a JSONL file, a Parquet file or a dataset, or names of two columns.
            Without them the columns are `source` and `target`.
        weight (`float`): How many times each pair comes in an epoch; of a stream, the corpus's share in the mix.

    Raises:
        ValueError: it names none or several of the three kinds, a format that does not exist, or a weight of 0.
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
        if self.file is not None and self.format not in _READERS:
            raise ValueError(
                f"The name of a `file` must end with {', '.join(_READERS)} (.gz or .xz may follow the first two), "
                f"got {self.file}."
            )
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float) or not 0 < self.weight < 1e6:
            raise ValueError(f"`weight` of the corpus {self.name} must be a number above 0, got {self.weight!r}.")

    @property
    def name(self) -> str:
        """What the user called it."""
        return self.dataset or self.file or f"{self.source} | {self.target}"

    @property
    def files(self) -> list[Path]:
        """Its files; of a dataset none."""
        return [Path(path) for path in (self.source, self.target, self.file) if path is not None]

    @property
    def format(self) -> str:
        """The ending of `file` without a compression's."""
        suffixes = Path(self.file or "").suffixes
        packed = len(suffixes) > 1 and suffixes[-1] in _COMPRESSIONS and suffixes[-2] != ".parquet"
        return "".join(suffixes[-2:-1] if packed else suffixes[-1:])

    def place(self, side: int) -> str:
        """Where a side (0 or 1) of its pairs is written, for messages."""
        return f"the dataset {self.dataset}" if self.dataset is not None else str(self.files[side % len(self.files)])


def read_pairs(spec: CorpusSpec, streaming: bool = False) -> Iterator[SentencePair]:
    """
    The pairs of a corpus, one for each line or row, uncleaned: a side may be blank, and bytes that are not UTF-8 are
    lone surrogates (as in PEP 383), which the rules of cleaning find.

    Args:
        streaming (`bool`): Read a dataset of the Hub as it is downloaded, with nothing kept on disk.

    Raises:
        OSError: a file or dataset is missing or cannot be read.
        ValueError: a file is empty or damaged, the numbers of lines differ, or a line or row does not hold a pair.
    """
    if spec.dataset is not None:
        return _read_dataset(spec, streaming)
    check_files(spec)
    return _read_parallel_lines(spec) if spec.file is None else _READERS[spec.format](spec)


def read_text_files(source_file: str | Path, target_file: str | Path) -> list[SentencePair]:
    """
    Reads two UTF-8 files with one sentence a line; line n of one is the translation of line n of the other.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is empty or not UTF-8 (with the line), the numbers of lines differ, or a line is blank on
            one side only (with the line).
    """
    sources, targets = read_lines(source_file), read_lines(target_file)
    if len(sources) != len(targets):
        raise _differing_numbers(source_file, len(sources), target_file, len(targets))
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        if bool(source) != bool(target):
            raise blank_side(number, source_file if not source else target_file)
    return [SentencePair(source, target) for source, target in zip(sources, targets, strict=True) if source]


def read_lines(path: str | Path) -> list[str]:
    """
    Lines of a UTF-8 text file without the white space around them. Only line feeds end a line, as in `wc -l`.

    Raises:
        OSError: there is no such file.
        ValueError: it is empty or damaged, or not UTF-8 (with the line).
    """
    path = Path(path)
    _check_file(path)
    lines = []
    for number, line in enumerate(_iterate_lines(path), start=1):
        if has_invalid_unicode(line):
            raise invalid_unicode(number, path, line)
        lines.append(line.strip())
    return lines


def load_splits(name: str, streaming: bool = False) -> dict[str, Any]:
    """
    All splits of a dataset, memory-mapped (or streamed from the Hub).

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
            f"`dataset` must be a folder that `save_to_disk` has written, or a name on the Hub, got the folder {name}."
        ) from None
    # A dataset can also be saved without the name of a split.
    return {"train": found} if isinstance(found, datasets.Dataset) else found


def load_split(spec: CorpusSpec, streaming: bool = False) -> Any:
    """
    The split of a dataset that a corpus names.

    Raises:
        ValueError: there is no such split (with those that there are).
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
    """Whether `text` holds what cannot be written as UTF-8, as bytes that were not UTF-8 do here."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def spell_out(text: str) -> str:
    """Text that can be written as UTF-8: escapes stand for what is not valid Unicode."""
    return _SURROGATE.sub(lambda found: ascii(found[0])[1:-1].replace("\\udc", "\\x"), text)


def invalid_unicode(number: int, place: str | Path, text: str) -> ValueError:
    """The error for a line or row that is not valid Unicode."""
    found = ord(_SURROGATE.findall(text)[0])
    what = f"the byte 0x{found - 0xDC00:02x}" if 0xDC80 <= found <= 0xDCFF else f"U+{found:04X}"
    return ValueError(
        f"{place} must be UTF-8, but line {number} has {what} where none can be. Convert the file, for example with "
        "`iconv -f latin1 -t utf-8`, or leave such pairs out by `drop_invalid_unicode`."
    )


def blank_side(number: int, place: str | Path) -> ValueError:
    """The error for a line or row without text on one side."""
    return ValueError(
        f"Line {number} of {place} is blank, but its translation is not. Mend or delete both, or leave such pairs out "
        "by `drop_empty`."
    )


def check_files(spec: CorpusSpec) -> None:
    """
    Raises:
        OSError: one of the corpus's files is missing.
        ValueError: one is empty.
    """
    for path in spec.files:
        _check_file(path)


def compression(path: Path) -> str:
    """The ending that says how a file is packed, or nothing."""
    return path.suffix if path.suffix in _COMPRESSIONS else ""


def _check_file(path: Path) -> None:
    """Raises an error unless `path` is a file with something other than white space in it."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Give the path of a text file with one sentence a line.")
    with _opened(path) as file:
        if not any(line.strip() for line in file):
            raise ValueError(f"{path} is empty. It must have one sentence a line.")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked where its name says so."""
    try:
        with _COMPRESSIONS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except _DAMAGED as error:
        raise ValueError(f"{path} must be a whole {path.suffix} file, but reading it ended with: {error}.") from error


def _iterate_lines(path: Path) -> Iterator[str]:
    """Lines without their line feeds; bytes that are not UTF-8 become lone surrogates."""
    with _opened(path) as file:
        first = next(iter(file)).removeprefix(_BYTE_ORDER_MARK)
        for line in chain([first], file):
            yield line.removesuffix(b"\n").decode("utf-8", errors="surrogateescape")


def _read_parallel_lines(spec: CorpusSpec) -> Iterator[SentencePair]:
    sources, targets = map(_iterate_lines, spec.files)
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in chain(sources, targets))
            counts = [number, number + rest] if source is None else [number + rest, number]
            raise _differing_numbers(spec.files[0], counts[0], spec.files[1], counts[1])
        yield SentencePair(source.strip(), target.strip())


def _differing_numbers(source_file: Any, sources: int, target_file: Any, targets: int) -> ValueError:
    return ValueError(
        f"Both sides must have the same number of lines, got {sources} in {source_file} and {targets} in "
        f"{target_file}."
    )


def _read_tsv(spec: CorpusSpec) -> Iterator[SentencePair]:
    """Quotation marks mean nothing: they are part of the sentences."""
    for number, line in enumerate(_iterate_lines(spec.files[0]), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            raise ValueError(
                f"Line {number} of {spec.file} must have two columns, source TAB target, it has {len(columns)}."
            )
        yield SentencePair(columns[0].strip(), columns[1].strip())


def _read_jsonl(spec: CorpusSpec) -> Iterator[SentencePair]:
    for number, line in enumerate(_iterate_lines(spec.files[0]), start=1):
        place = f"Line {number} of {spec.file}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{place} must be JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{place} must be a JSON object, got {type(row).__name__}.")
        texts = row.get("translation", row)
        if not isinstance(texts, dict):
            raise ValueError(f"{place} must have sentences by language in its `translation`, got {texts!r}.")
        yield SentencePair(*(_text(texts[side], place) for side in _sides(texts, "translation" in row, spec, place)))


def _text(value: Any, place: str) -> str:
    """A sentence in a row; a null is a sentence that is missing."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{place} must hold sentences, got {value!r}.")
    return value.strip()


def _read_parquet(spec: CorpusSpec) -> Iterator[SentencePair]:
    try:
        with pyarrow.parquet.ParquetFile(spec.files[0]) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield from _pairs_of_table(pa.Table.from_batches([batch]), spec)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{spec.file} must be a Parquet file, but reading it ended with: {error}.") from error


def _read_dataset(spec: CorpusSpec, streaming: bool) -> Iterator[SentencePair]:
    for table in load_split(spec, streaming).with_format("arrow").iter(_ROWS_AT_ONCE):
        yield from _pairs_of_table(table, spec)


def _pairs_of_table(table: pa.Table, spec: CorpusSpec) -> Iterator[SentencePair]:
    nested = "translation" in table.column_names and pa.types.is_struct(table["translation"].type)
    if nested:
        table = pa.Table.from_struct_array(table["translation"])
    place = spec.name if spec.dataset is None else f"The dataset {spec.name}"
    columns = [_texts(table[side], spec) for side in _sides(table.column_names, nested, spec, place)]
    return map(SentencePair, *columns)


def _texts(column: pa.ChunkedArray, spec: CorpusSpec) -> list[str]:
    """A column's sentences. By way of bytes, since Parquet files may hold text that is not UTF-8."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"{spec.name} must hold sentences, but it has a column of type {column.type}.")
    values = column.cast(pa.large_binary()).to_pylist()
    return ["" if value is None else value.decode("utf-8", errors="surrogateescape").strip() for value in values]


def _sides(names: Iterable[str], nested: bool, spec: CorpusSpec, place: str) -> tuple[str, str]:
    """Which of the columns, or of the languages of a `translation`, are source and target."""
    names = list(names)
    languages = [language for language in (spec.source_language, spec.target_language) if language is not None]
    for sides in (languages, ["source", "target"]):
        if len(sides) == 2 and set(sides) <= set(names):
            return sides[0], sides[1]
    found = ", ".join(map(repr, names))
    if nested and len(languages) < 2:
        raise ValueError(f"{place} needs `source_language` and `target_language`, two of {found}.")
    if nested:
        missing = next(language for language in languages if language not in names)
        raise ValueError(f"{place} has no language {missing!r}, it has {found}.")
    raise ValueError(
        f"{place} must have a column 'translation', it has {found}. Columns named as the two languages, or "
        "'source' and 'target', will do as well."
    )


# What the ending of a file means.
_READERS = {".tsv": _read_tsv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
