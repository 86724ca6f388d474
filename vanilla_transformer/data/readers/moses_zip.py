"""Moses archives of OPUS: a zip with a text file for each of two languages, which their suffixes name."""

import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

from .corpus_spec import SentencePair
from .lines import decode_lines
from .open_corpora import OpenCorpus
from .parallel_text import pair_lines


def parse_moses_zip(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Pair the lines of the two files in an archive whose names end with the languages, as in `Books.de-en.de`.

    Raises:
        ValueError: the languages are not given, the archive is corrupt or lacks one of the files, or their numbers of
            lines differ.
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    try:
        with zipfile.ZipFile(corpus.files[0]) as archive:
            members = [_find_member(archive, language, name) for language in languages]
            with _open(archive, members[0]) as sources, _open(archive, members[1]) as targets:
                names = [f"{member} in {name}" for member in members]
                yield from pair_lines(decode_lines(sources, names[0]), decode_lines(targets, names[1]), names)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"Cannot read {name}: the .zip file is truncated or corrupt ({error}).") from error
    except RuntimeError as error:  # an encrypted member
        raise ValueError(f"Cannot read {name}: {error}.") from error


def _open(archive: zipfile.ZipFile, member: str) -> BufferedReader:
    raw: Any = archive.open(member)
    return BufferedReader(raw)  # reads bounded lines fast


def _find_member(archive: zipfile.ZipFile, language: str, name: str) -> str:
    found = [member for member in archive.namelist() if member.endswith(f".{language}")]
    if len(found) == 1:
        return found[0]
    listing = ", ".join(found or archive.namelist()) or "none"
    raise ValueError(f"{name} must have one file whose name ends with .{language}, got {listing}.")
