"""Folders of text: their files, in the order of their names, are one text."""

from collections.abc import Iterator
from pathlib import Path

from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.hashes import files_within, hash_file, hash_json
from vanilla_transformer.files.text_files import stream_lines


def text_files(path: str | Path, output: str | Path | None = None) -> list[Path]:
    """
    Return the files of a text: the one of this name, or all of a folder and of the folders in it
    but for hidden ones.

    Args:
        output: The file to write, which must not be one of them when the command is repeated.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    if output is not None and Path(output).resolve().is_relative_to(path.resolve()):
        raise UserError(
            f"The output must be outside of {path}, whose files are read, got {output}. Choose "
            "another folder."
        )
    files = []
    for file in files_within(path):
        name = file.relative_to(path).as_posix()
        if not name.startswith(".") and "/." not in name:
            files.append(file)
    if not files:
        raise MissingFileError(f"A folder of text must have files, but {path} has none. Add some.")
    return files


def stream_texts(path: str | Path, **options: bool) -> Iterator[str]:
    """Yield the lines of a text, in a file or a folder, as [`stream_lines`] does."""
    for file in text_files(path):
        yield from stream_lines(file, **options)


def hash_texts(path: str | Path) -> str:
    """Return the hash of a file, or of the names and contents of the files of a folder."""
    files = text_files(path)
    if files == [Path(path)]:
        return hash_file(files[0])
    names = [file.relative_to(path).as_posix() for file in files]
    return hash_json(names, [*map(hash_file, files)])
