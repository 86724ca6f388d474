"""
Text in UTF-8: whole texts, and lines of files and pipes of any size, decompressed as the names of
files require.

Bytes of lines that are not UTF-8 become lone surrogates (PEP 383).
"""

import codecs
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.inputs import COMPRESSIONS, compression_of, is_pipe, open_input

# pyarrow and gzip raise OSError.
_CORRUPT = (EOFError, OSError, lzma.LZMAError, zlib.error)
# Bytes: a small compressed file can hold one that fills the memory.
LONGEST_LINE = 2**24
ZIP = "PK\3\4"  # at the beginning
_XML_ENCODING = re.compile(r"\A(\ufeff?<\?xml\s[^>]*?\sencoding\s*=\s*[\"'])[^\"']+")
_DECLARED = re.compile(
    rb"\s*+<(?:\?xml\s[^>]*?\sencoding\s*+=\s*+[\"']"
    rb"|.{,4000}?<meta\s[^<>]*?charset\s*+=\s*+[\"']?+\s*+)([\w.:-]+)",
    re.DOTALL | re.IGNORECASE,
)
_LATIN = "latin-1"
_MOST_BLANK_LINES = 10_000  # before the first line with text


def decode_text(content: bytes, name: str, first: int = 1) -> str:
    """Decode UTF-8 from line `first` of a text on, which may begin with a byte order mark."""
    if first == 1:
        refuse_binary(content[:HEAD_BYTES], name)
    try:
        return content.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        decoded = error.object  # without the mark
        line = first + decoded.count(b"\n", 0, error.start)
        raise not_utf_8_error(name, line, decoded[error.start], decoded) from None


def decode_document(content: bytes, name: str, format: str = "") -> tuple[str, str]:
    """
    Return a text and its encoding: of its byte order mark, which stays, or that XML or HTML
    declares, or UTF-8.

    The text of a zip is its bytes, as Latin-1. Text of the format `properties` is Latin-1 if it is
    not UTF-8.
    """
    if content.startswith(ZIP.encode()):
        return content.decode(_LATIN), _LATIN
    marked = _find_marked_encoding(content)
    declared = _DECLARED.match(content)
    is_utf_8 = content.decode(errors="ignore").encode() == content
    encoding = "UTF-8"
    if marked:
        encoding = marked + ("-LE" if content.startswith(codecs.BOM_UTF16_LE) else "-BE")
    # UTF-8 under another name is UTF-8.
    if declared and (content.isascii() or not is_utf_8):
        encoding = declared[1].decode()
    elif format == "properties" and not (marked or is_utf_8):
        refuse_binary(content[:HEAD_BYTES], name)
        encoding = _LATIN
    with suppress(LookupError, UnicodeDecodeError):
        text = content.decode(encoding)
        if marked or (encoding != "UTF-8" and text.isascii() == content.isascii()):
            return text, encoding
    text = decode_text(content, name)
    if content.startswith(codecs.BOM_UTF8):
        text = f"\ufeff{text}"
    return text, "UTF-8"


def fit_encoding(text: str, encoding: str) -> str:
    """Return a document for an encoding.

    References of XML or escapes stand for characters that it does not have.
    """
    if encoding == "UTF-8":
        return text
    if encoding == _LATIN and not _DECLARED.match(text.encode()):
        return re.sub(r"[^\0-\xff]", lambda match: json.dumps(match[0])[1:-1], text)
    declared = encoding.removesuffix("-LE").removesuffix("-BE")
    text = _XML_ENCODING.sub(rf"\g<1>{declared}", text)
    return text.encode(encoding, "xmlcharrefreplace").decode(encoding)


def read_lines(path: str | Path) -> list[str]:
    """Read the lines of a UTF-8 text file and strip white space.

    Only line feeds end a line, as for `wc -l`.
    """
    return [line.strip() for line in stream_lines(path)]


def stream_lines(
    path: str | Path, may_be_blank: bool = False, may_be_markup: bool = False
) -> Iterator[str]:
    """
    Yield the lines of a UTF-8 text file, without their ends. Only line feeds end a line, as for
    `wc -l`.

    Args:
        may_be_blank: Whether lines without text suffice.
        may_be_markup: Whether lines of markup or data suffice.
    """
    with open_file(Path(path)) as file:
        lines = read_file_lines(file, may_be_blank, may_be_markup)
        for number, line in enumerate(lines, start=1):
            if has_invalid_unicode(line):
                raise invalid_unicode_error(number, path, line)
            yield line.rstrip("\r")


def open_file(path: Path) -> BufferedReader:
    """Open a file or a pipe, see [`open_input`]."""
    if not (path.is_file() or is_pipe(path)):
        raise MissingFileError(
            f"There is no file {path}. Check its name, and the folder of this command."
        )
    return open_input(path)


@contextmanager
def decompress(file: BufferedReader) -> Iterator[Any]:
    """Yield a binary file decompressed as its name requires."""
    ending = compression_of(file.name)
    if not ending:
        yield file
        return
    try:
        yield COMPRESSIONS[ending](file, "rb")
    except _CORRUPT as error:
        raise UserError(
            f"Cannot read {file.name}: the {ending} file is truncated or corrupt ({error})."
        ) from error


def read_file_lines(
    file: BufferedReader, may_be_blank: bool = False, may_be_markup: bool = False
) -> Iterator[str]:
    """Yield the lines of a file, decompressed as its name requires, as [`decode_lines`] does."""
    before = file_version(file)
    with decompress(file) as lines:
        yield from decode_lines(lines, file.name, may_be_blank, may_be_markup)
    check_version(file, before)


def file_version(file: BufferedReader) -> tuple[int, int]:
    """Return what changes when an open file is written."""
    facts = os.fstat(file.fileno())
    return facts.st_size, facts.st_mtime_ns


def check_version(file: BufferedReader, before: tuple[int, int]) -> None:
    """Check that a file is still as it was before it was read, or text of both would be mixed."""
    # pyarrow closes what it decompresses.
    if not file.closed and file_version(file) != before:
        raise UserError(
            f"{file.name} must not change while it is read, but it did. Run the command again."
        )


def decode_lines(
    file: Any, name: str, may_be_blank: bool = False, may_be_markup: bool = False
) -> Iterator[str]:
    """
    Yield lines without their line feeds; bytes that are not UTF-8 become lone surrogates.

    Args:
        file: An open binary file, which can be peeked into.
        name: Name of the file, for messages.
        may_be_blank: Whether lines without text suffice.
        may_be_markup: Whether lines of markup or data suffice.
    """
    head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
    refuse_binary(head, name)
    if not may_be_markup:
        refuse_markup(head, name)
    lines = _bounded_lines(file, name)
    # Lines up to the first that is not blank
    leading, size = [], 0
    for line in lines:
        leading.append(line)
        size += len(line)
        if may_be_blank or line.strip():
            break
        if size > LONGEST_LINE or len(leading) > _MOST_BLANK_LINES:
            raise UserError(
                f"{name} must begin with text, but its first {len(leading):,} lines are blank."
            )
    else:
        raise UserError(f"{name} is empty. It must have one sentence per line.")
    leading[0] = leading[0].removeprefix(codecs.BOM_UTF8)
    yield from map(_decode_line, chain(leading, lines))


def continue_lines(file: BufferedReader, offset: int, before: int) -> Iterator[str]:
    """Yield the lines of a file from a byte on, as [`read_file_lines`] does from its beginning.

    Args:
        before: Lines that precede, for messages.
    """
    file.seek(offset)
    yield from map(_decode_line, _bounded_lines(file, file.name, before))


def find_lines(file: BufferedReader, step: int) -> list[int]:
    """Return the byte where each `step`-th line of a file begins, from the first one on."""
    offsets, offset = [0], 0
    for number, line in enumerate(_bounded_lines(file, file.name)):
        if number and number % step == 0:
            offsets.append(offset)
        offset += len(line)
    return offsets


def _decode_line(line: bytes) -> str:
    return line.removesuffix(b"\n").decode("utf-8", errors="surrogateescape")


def _bounded_lines(file: Any, name: str, before: int = 0) -> Iterator[bytes]:
    lines = iter(partial(file.readline, LONGEST_LINE + 1), b"")
    for number, line in enumerate(lines, start=1 + before):
        if len(line) > LONGEST_LINE:
            raise long_line_error(number, name)
        yield line


def long_line_error(number: int, name: str | Path) -> UserError:
    """Return the error for a line that is too long."""
    return UserError(
        f"Line {number} of {name} must have at most {LONGEST_LINE:,} bytes, but is longer. Split "
        "it."
    )


_SURROGATE = re.compile("[\ud800-\udfff]")


def has_invalid_unicode(text: str) -> bool:
    """Return whether `text` holds surrogates, which UTF-8 cannot encode and which stand for invalid
    bytes here.
    """
    return not text.isascii() and _SURROGATE.search(text) is not None


def escape_invalid_unicode(text: str) -> str:
    """Replace what UTF-8 cannot encode by escape sequences such as `\\xe4`."""

    def escape(surrogate: re.Match[str]) -> str:
        return ascii(surrogate[0])[1:-1].replace("\\udc", "\\x")

    return _SURROGATE.sub(escape, text)


def invalid_unicode_error(
    number: int, location: str | Path, text: str, way_out: str = ""
) -> UserError:
    """
    Return the error for a line or row that is not valid Unicode.

    Args:
        way_out: What to do otherwise than to mend the text.
    """
    code_point = ord(_SURROGATE.findall(text)[0])
    if 0xDC80 <= code_point <= 0xDCFF:
        content = text.encode(errors="surrogateescape")
        return not_utf_8_error(location, number, code_point - 0xDC00, content, way_out)
    # In UTF-8, written as an escape sequence of JSON.
    requirement = (
        f"Line {number} of {location} must be valid Unicode, but it has half of a "
        f"character, U+{code_point:04X}"
    )
    return UserError(f"{requirement}. Mend or delete it{way_out}.")


# Encodings of text that is not UTF-8; others are rarer than wrong guesses.
_LEGACY = [
    *(f"cp125{number}" for number in range(9)),
    "koi8_r",
    "cp932",
    "euc_jp",
    "gb18030",
    "big5",
    "cp949",
]


def not_utf_8_error(
    name: str | Path, line: int, byte: int, content: bytes, way_out: str = ""
) -> UserError:
    """
    Return the error for text that is not UTF-8.

    Args:
        content: The text, or a part of it, which tells what it may be in.
        way_out: What to do otherwise than to convert the file.
    """
    from charset_normalizer import from_bytes

    guess = from_bytes(content, cp_isolation=_LEGACY).best()
    same = guess.could_be_from_charset if guess else ["cp1252"]
    encoding = "cp1252" if "cp1252" in same else same[0].replace("_", "-")
    hint = (
        f"It may be {encoding}: convert the file, for example with `iconv -f {encoding} -t "
        f"utf-8`{way_out}."
    )
    return UserError(
        f"{name} must be UTF-8, but line {line} has the byte 0x{byte:02x} where none can be. {hint}"
    )


HEAD_BYTES = 4096  # of a text, which tell its encoding or format
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


# What files that are no text begin with, their formats, and the endings of those that commands
# read.
_BINARY = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"BZh": ("bzip2", ".bz2"),
    b"\xfd7zXZ\0": ("xz", ".xz"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst"),
    ZIP.encode(): ("a zip, such as DOCX, EPUB or an archive of OPUS", ""),
    b"PAR1": ("Parquet", ".parquet"),
    b"%PDF-": ("PDF", ""),
    b"\x89PNG": ("PNG", ""),
    b"\xff\xd8\xff": ("JPEG", ""),
    b"7z\xbc\xaf": ("7z", ""),
    b"{\\rtf": ("RTF", ""),
    b"ARROW1": ("Arrow", ""),
    b"SQLite format 3": ("SQLite", ""),
    b"\xd0\xcf\x11\xe0": ("a document of Office that is encrypted or of before 2007", ""),
}
_TAGS = {b"xliff": ("XLIFF", ".xlf"), b"tmx": ("TMX", ".tmx"), b"html": ("HTML", ".html")}
_MARKUP = re.compile(
    rb"\s*+(?:<\?xml\s|<!DOCTYPE\s|<(?:html|xliff|tmx)[\s>])|(?P<vtt>WEBVTT\s)"
    rb"|(?P<srt>\s*+\d+\r{,3}\n[\d:]+[,.]\d+ -->)"
    rb"|(?P<po>(?:#[^\n]*+\n|[ \t\r]*+\n)*+(?:msgctxt|msgid) \")|(?P<jsonl>\{\s*+\"[^\n]*\}\s*\n)",
    re.IGNORECASE,
)


def refuse_markup(head: bytes, name: str) -> None:
    """Refuse a format of markup or data, given the first bytes of what should be lines of text."""
    match = _MARKUP.match(head.removeprefix(codecs.BOM_UTF8))
    if match is None or (match.lastgroup == "jsonl" and ".jsonl" in name):
        return
    kind = match.lastgroup or ""
    form, ending = kind.upper(), f".{kind}"
    if not kind:
        form, ending = _find_tag(head)
    hint = f"Convert it to text, or name it as *{ending} for a command that reads that"
    raise UserError(f"{name} must have lines of text, but it is {form}. {hint}.")


def _find_tag(head: bytes) -> tuple[str, str]:
    """Return the format of XML or HTML that begins so, and its ending."""
    for tag, form in _TAGS.items():
        if re.search(rb"<(?:!doctype\s+)?%b\b" % tag, head, re.IGNORECASE):
            return form
    return "XML", ".xml"


def _find_marked_encoding(head: bytes) -> str:
    """Return the encoding of the byte order mark of UTF-16 or UTF-32 at the start of a text, or
    nothing.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    return ""


def refuse_binary(head: bytes, name: str | Path) -> None:
    """
    Refuse other formats than text, and UTF-16 and UTF-32, given the first bytes of a text.

    Without a byte order mark, UTF-16 shows by zeros, which its spaces and letters up to U+00FF
    have, all at even or all at odd places.
    """
    for mark, (form, ending) in _BINARY.items():
        if not head.startswith(mark):
            continue
        hint = "Convert it to text"
        if ending:
            hint = f"Rename it, so that its name ends with {ending}"
        raise UserError(f"{name} must be text in UTF-8, but it is {form}. {hint}.")
    encoding = _find_marked_encoding(head)
    even, odd = head[::2].count(0), head[1::2].count(0)
    fewer, more = sorted((even, odd))
    if not encoding and more > max(3, 0.01 * len(head), 5 * fewer):
        encoding = "UTF-16BE" if even > odd else "UTF-16LE"
    if encoding:
        hint = f"Convert the file: `iconv -f {encoding} -t UTF-8 OLD > NEW`."
        raise UserError(f"{name} must be UTF-8, but it is {encoding}. {hint}")
