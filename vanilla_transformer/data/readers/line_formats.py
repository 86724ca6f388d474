"""
Formats with a pair in each line or row: two text files, TSV, JSONL, archives of OPUS, Parquet files
and datasets.

Own code reads TSV and JSONL because `datasets` names no line in its errors and stops at the first
invalid byte, which `invalid_unicode` has to survive. Quotation marks of TSV are part of the
sentences. `pyarrow` reads Parquet from the open file, without another copy on disk.
"""

import json
import logging
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import chain, count, islice, repeat, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import compression_of
from vanilla_transformer.files.text_files import (
    continue_lines,
    decode_lines,
    find_lines,
    has_invalid_unicode,
    invalid_unicode_error,
    read_file_lines,
)
from vanilla_transformer.text.column_names import find_named_columns

from .corpora import (
    ROWS_PER_BATCH,
    CorpusRow,
    CorpusSpec,
    OpenCorpus,
    Piece,
    SentencePair,
    open_corpus,
)

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_NESTED = "translation"  # the column of both sentences, if they are in one
_SCORE = "score"  # the column of scores, if there is one


def read_text_files(source_file: str | Path, target_file: str | Path) -> list[SentencePair]:
    """Read two parallel UTF-8 files: line n of the target file is the translation of line n of the
    source file.
    """
    pairs = list(stream_text_files(source_file, target_file))
    for number, (source, target) in enumerate(pairs, start=1):
        if bool(source) != bool(target):
            blank_file = target_file if source else source_file
            raise blank_side_error(number, blank_file)
    return [pair for pair in pairs if pair.source]


def blank_side_error(number: int, location: str | Path, way_out: str = "") -> UserError:
    """Return the error for a line or row without text on one side.

    Args:
        way_out: What to do otherwise than to mend the text.
    """
    return UserError(
        f"Line {number} of {location} is blank, but its translation is not. Mend or delete "
        f"both{way_out}."
    )


def stream_text_files(source_file: str | Path, target_file: str | Path) -> Iterator[SentencePair]:
    """Yield the pairs of two parallel UTF-8 files one by one, without white space at the ends.

    A side may be blank.
    """
    spec = CorpusSpec(source=str(source_file), target=str(target_file))
    with open_corpus(spec) as corpus:
        for number, pair in enumerate(parse_parallel_lines(corpus), start=1):
            for path, text in zip((source_file, target_file), pair, strict=True):
                if has_invalid_unicode(text):
                    raise invalid_unicode_error(number, path, text)
            yield pair


def parse_parallel_lines(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Pair the lines of two files."""
    sources, targets = _read_piece(corpus, 0), _read_piece(corpus, 1)
    return _pair_lines(sources, targets, [file.name for file in corpus.files], corpus.piece.before)


def split_corpus(corpus: OpenCorpus, lines: int) -> list[Piece]:
    """Return the pieces of a corpus with so many lines each, which can be read by themselves.

    A corpus that is compressed or has other formats than lines is one piece.
    """
    has_lines = corpus.rows is None and corpus.format in ("", ".tsv", ".jsonl")
    if not has_lines or any(compression_of(file.name) for file in corpus.files):
        return [Piece()]
    pieces = list[Piece]()
    for offsets in zip(*(find_lines(file, lines) for file in corpus.files), strict=False):
        pieces.append(Piece(lines * len(pieces), offsets, lines))
    # The last one has all further lines, also if a side has more: reading it reports that.
    pieces[-1] = pieces[-1]._replace(lines=Piece().lines)
    return pieces


def _read_piece(corpus: OpenCorpus, side: int = 0) -> Iterator[str]:
    """Return the lines of a file that belong to the piece of its corpus."""
    file, piece = corpus.files[side], corpus.piece
    lines = read_file_lines(file)
    if piece.before:
        lines = continue_lines(file, piece.offsets[side], piece.before)
    return islice(lines, piece.lines)


def _pair_lines(
    sources: Iterator[str], targets: Iterator[str], names: Sequence[str], before: int = 0
) -> Iterator[SentencePair]:
    """Pair lines, without white space at their ends."""
    for number, (source, target) in enumerate(zip_longest(sources, targets), start=before):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in chain(sources, targets))
            sizes = [number, number + rest]
            if target is None:
                sizes.reverse()
            numbers = f"{sizes[0]} in {names[0]} and {sizes[1]} in {names[1]}"
            raise UserError(f"Both sides must have the same number of lines, got {numbers}.")
        yield SentencePair(source.strip(), target.strip())


def parse_jsonl(corpus: OpenCorpus) -> Iterator[CorpusRow]:
    """Parse objects with both languages, maybe in a `translation`, and maybe with a `score`."""
    file = corpus.files[0]
    for number, line in enumerate(_read_piece(corpus), start=1 + corpus.piece.before):
        if not line.strip():
            continue
        location = f"Line {number} of {file.name}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also for integers of more than 4,300 digits
            raise UserError(f"{location} must be JSON: {error}.") from error
        if not isinstance(row, dict):
            raise UserError(f"{location} must be a JSON object, got {type(row).__name__}.")
        texts = row.get(_NESTED, row)
        if isinstance(texts, dict) and {*texts} == {"language", _NESTED}:  # lists of both
            codes, sentences = texts["language"], texts[_NESTED]
            are_lists = isinstance(codes, list) and isinstance(sentences, list)
            if not are_lists or len(codes) != len(sentences):
                raise UserError(
                    f"{location} must list a sentence for each language, got {texts!r}."
                )
            texts = dict(zip(map(str, codes), sentences, strict=True))
        if not isinstance(texts, dict):
            raise UserError(
                f"{location} must have sentences by language in its `translation`, got {texts!r}."
            )
        is_nested = _NESTED in row
        names = _find_text_columns(texts, is_nested, corpus.spec, location, may_lack=True)
        sides: list[str] = []
        for name in names:
            value = texts.get(name)
            if not isinstance(value, str | None):
                raise UserError(f"{location} must hold sentences, got {value!r}.")
            sides.append((value or "").strip())
        score = None
        if row.get(_SCORE) is not None:
            score = _parse_score(row[_SCORE], location)
        yield CorpusRow(number, SentencePair(*sides), score)


def parse_moses_zip(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Pair the lines of the two files in an archive whose names end with the languages, as in
    `Books.de-en.de`.
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    try:
        with zipfile.ZipFile(corpus.files[0]) as archive:
            members = list[str]()
            all_members = archive.namelist()
            for language in languages:
                ending = f".{language}"
                matching = [member for member in all_members if member.endswith(ending)]
                if len(matching) != 1:
                    listing = ", ".join(matching or all_members) or "none"
                    requirement = f"{name} must have one file whose name ends with {ending}"
                    raise UserError(f"{requirement}, got {listing}.")
                members += matching
            names = [f"{member} in {name}" for member in members]
            raw: list[Any] = [archive.open(member) for member in members]
            # They read bounded lines fast.
            with BufferedReader(raw[0]) as sources, BufferedReader(raw[1]) as targets:
                source_lines = decode_lines(sources, names[0])
                target_lines = decode_lines(targets, names[1])
                yield from _pair_lines(source_lines, target_lines, names)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        problem = f"the .zip file is truncated or corrupt ({error})"
        raise UserError(f"Cannot read {name}: {problem}.") from error
    except RuntimeError as error:  # an encrypted member
        raise UserError(f"Cannot read {name}: {error}.") from error


def parse_parquet(corpus: OpenCorpus) -> Iterator[CorpusRow]:
    import pyarrow as pa

    file = corpus.files[0]
    try:
        tables = _read_tables(file, corpus.spec)
        yield from parse_tables(tables, corpus.spec)
    except pa.ArrowInvalid as error:
        problem = f"it must be a Parquet file ({error})"
        raise UserError(f"Cannot read {file.name}: {problem}.") from error


_BATCH_BYTES = 2**26
_LARGEST_EXPANSION = 1000  # bytes of a column from each byte of the file


def _read_tables(path: BufferedReader, spec: CorpusSpec) -> Iterator["pa.Table"]:
    """Yield the rows of a Parquet file in tables of bounded size, since rows share the texts of a
    dictionary.
    """
    import pyarrow as pa
    from pyarrow.compute import binary_length
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path)
    is_nested, names = _find_texts(file.schema_arrow, spec)
    prefix = f"{_NESTED}."
    paths = [prefix + name if is_nested else name for name in names]
    if _has_lists(file.schema_arrow):
        all_paths = [column.path for column in file.schema]
        paths = [path for path in all_paths if path.startswith(prefix)]
    columns_to_read = [*paths]
    if _SCORE in file.schema_arrow.names:
        columns_to_read.append(_SCORE)
    for group in range(file.num_row_groups):
        chunks = file.metadata.row_group(group)
        for number in range(file.metadata.num_columns):
            chunk = chunks.column(number)
            column_name = chunk.path_in_schema
            largest = max(_BATCH_BYTES, _LARGEST_EXPANSION * chunk.total_compressed_size)
            if column_name in paths and chunk.total_uncompressed_size > largest:
                requirement = f"{path.name} must not expand more than {_LARGEST_EXPANSION:,}-fold"
                raise UserError(f"{requirement}, but its column {column_name} does.")
        by_dictionary = ParquetFile(path, metadata=file.metadata, read_dictionary=paths)
        longest = 0
        for batch in islice(by_dictionary.iter_batches(1, [group], paths), 1):
            for column in pa.Table.from_batches([batch]).flatten().columns:
                if pa.types.is_dictionary(column.type):
                    sizes = binary_length(column.chunk(0).dictionary).to_pylist()
                    longest = max([longest, *filter(None, sizes)])
        rows = min(ROWS_PER_BATCH, 1 + _BATCH_BYTES // (1 + longest))
        for batch in file.iter_batches(rows, [group], columns_to_read):
            yield pa.Table.from_batches([batch])


def parse_tables(tables: Iterable["pa.Table"], spec: CorpusSpec) -> Iterator[CorpusRow]:
    """Parse the rows of a dataset or of a Parquet file."""
    import pyarrow as pa

    numbers = count(1)
    for table in tables:
        scores: Iterable[float | None] = repeat(None, len(table))
        if _SCORE in table.column_names:
            kind = table[_SCORE].type
            if pa.types.is_floating(kind) or pa.types.is_integer(kind):
                scores = table[_SCORE].to_pylist()
        is_nested, names = _find_texts(table.schema, spec)
        if _has_lists(table.schema):
            rows = list[dict[str, str]]()
            for row in table[_NESTED].to_pylist():
                entries = zip(*row.values(), strict=True) if isinstance(row, dict) else row
                rows.append(dict(entries or ()))
            columns = {}
            for name in names:
                columns[name] = pa.array([row.get(name) for row in rows], pa.string())
            texts = pa.table(columns)
        elif is_nested:
            texts = pa.Table.from_struct_array(table[_NESTED])
        else:
            texts = table
        sources, targets = (_column_texts(texts[name], spec) for name in names)
        pairs = map(SentencePair, sources, targets)
        yield from map(CorpusRow, numbers, pairs, scores)


def _has_lists(schema: "pa.Schema") -> bool:
    """Return whether each `translation` lists its languages, as `TranslationVariableLanguages` and
    maps do.
    """
    import pyarrow as pa

    if _NESTED not in schema.names:
        return False
    kind = schema.field(_NESTED).type
    if not pa.types.is_struct(kind):
        return pa.types.is_map(kind)
    return {field.name for field in kind} == {"language", _NESTED}


def _find_texts(schema: "pa.Schema", spec: CorpusSpec) -> tuple[bool, tuple[str, str]]:
    """Return whether the sentences are in a column `translation`, and the names of their
    columns.
    """
    import pyarrow as pa

    if _has_lists(schema):
        return True, spec.require_languages()
    is_nested, names = False, schema.names
    if _NESTED in names:
        kind = schema.field(_NESTED).type
        if pa.types.is_struct(kind):
            is_nested, names = True, [field.name for field in kind]
    location = spec.name if spec.dataset is None else f"The dataset {spec.name}"
    return is_nested, _find_text_columns(names, is_nested, spec, location)


def _column_texts(column: "pa.ChunkedArray", spec: CorpusSpec) -> list[str]:
    """Return the sentences of a column, decoded from bytes because Parquet files may hold text that
    is not UTF-8.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"{spec.name} must hold sentences, but it has a column of type {kind}.")
    values = column.cast(pa.large_binary()).to_pylist()
    return [(value or b"").decode("utf-8", errors="surrogateescape").strip() for value in values]


def _find_text_columns(
    names: Iterable[str], nested: bool, spec: CorpusSpec, location: str, may_lack: bool = False
) -> tuple[str, str]:
    """Return which columns, or languages of a `translation`, are source and target; one of them may
    be missing.
    """
    names = list(names)
    codes = (spec.source_language, spec.target_language)
    languages = [code for code in codes if code is not None]
    for sides in (languages, ["source", "target"]):
        if len(sides) == 2 and len({*sides} & {*names}) >= 2 - may_lack:
            return sides[0], sides[1]
    listing = ", ".join(map(repr, sorted(names) if nested else names))
    if nested and len(languages) < 2:
        raise UserError(
            f"{location} needs `source_language` and `target_language`, two of {listing}."
        )
    if nested:
        missing = next(language for language in languages if language not in names)
        raise UserError(f"{location} has no language {missing!r}, it has {listing}.")
    raise UserError(
        f"{location} must have a column 'translation', it has {listing}. Columns named as the two "
        "languages, or 'source' and 'target', will do as well."
    )


_SAMPLE = 100  # lines at the beginning, by which columns of numbers are found


class _Columns(NamedTuple):
    """The indices of the columns, how many there are, and whether the first line names them."""

    source: int = 0
    target: int = 1
    score: int | None = None
    total: int = 2
    has_names: bool = False


def parse_tsv(corpus: OpenCorpus) -> Iterator[CorpusRow]:
    """
    Parse source TAB target, in any two columns of a file, and the score in a column of numbers.

    The first line may name the columns, see [`find_named_columns`]. Of more than two columns
    without names, the only two that are not numbers are the sides.
    """
    name, before = corpus.files[0].name, corpus.piece.before
    lines = read_file_lines(corpus.files[0])
    first = list(islice(lines, _SAMPLE))
    sample = [line for line in first if line.strip()]
    columns = _find_columns(sample, corpus.spec, name, is_logged=not before)
    if before:
        first, lines = [], _read_piece(corpus)
    piece = islice(chain(first, lines), corpus.piece.lines)
    numbered = enumerate(piece, start=1 + before)
    for number, line in islice(numbered, columns.has_names and not before, None):
        is_blank = not line.strip()
        cells = [""] * columns.total
        if not is_blank:
            cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != columns.total:
            requirement = "two columns, source TAB target"
            if columns.total != 2:
                requirement = f"{columns.total} columns, as the first"
            location = f"Line {number} of {name}"
            raise UserError(f"{location} must have {requirement}, it has {len(cells)}.")
        score = None
        if columns.score is not None and not is_blank:
            score = _parse_score(cells[columns.score], f"Line {number} of {name}")
        pair = SentencePair(cells[columns.source], cells[columns.target])
        yield CorpusRow(number, pair, score)


def _find_columns(lines: Sequence[str], spec: CorpusSpec, name: str, is_logged: bool) -> _Columns:
    """Return the columns of a file that begins with these lines, and log them if they are not just
    two sentences.
    """
    if not lines:
        return _Columns()
    first = lines[0].split("\t")
    sides = find_named_columns(first, spec.source_language, spec.target_language)
    has_names, count = sides is not None, len(first)
    rows = []
    for line in lines[has_names:]:
        cells = line.split("\t")
        if len(cells) == count:
            rows.append(cells)
    numbers = []
    for index, column in enumerate(zip(*rows, strict=True)):
        if all(map(_is_number, column)):
            numbers.append(index)
    if sides is None:
        texts = [0, 1]
        if count > 2:
            texts = [index for index in range(count) if index not in numbers]
        if len(texts) != 2 or count < 2:
            requirement, hint = "two columns, source TAB target", ""
            if count > 2:
                requirement += ", besides columns of numbers"
                hint = " Name the columns in a first line, such as source TAB target."
            raise UserError(f"Line 1 of {name} must have {requirement}, it has {count}.{hint}")
        sides = texts[0], texts[1]
    scores = [index for index in numbers if index not in sides]
    score = scores[0] if len(scores) == 1 else None
    if has_names:
        named = [index for index in scores if first[index].strip().casefold() == _SCORE]
        score = named[0] if named else score
    columns = _Columns(*sides, score, count, has_names)
    if is_logged and (has_names or count > 2):
        text = f"{name}: "
        if has_names:
            text += "The first line names the columns: "
        text += f"column {columns.source + 1} is the source"
        text += f", column {columns.target + 1} the target"
        if columns.score is not None:
            text += f", and column {columns.score + 1} has scores, by which `min_score` drops pairs"
        elif count > 2:
            text += "; no other is read"
        logger.info("%s.", text)
    return columns


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _parse_score(cell: object, location: str) -> float:
    """Return the score of a pair."""
    text = str(cell)
    if isinstance(cell, bool) or not _is_number(text):
        raise UserError(f"{location} must have a number as its score, got {text[:40]!r}.")
    return float(text)
