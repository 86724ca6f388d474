"""Atomic writes, and hashes that show damage: a reader sees the old or the new content, never part of it."""

import codecs
import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from .input_files import BINARY_ENDINGS, COMPRESSIONS, compression_of, open_input

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

HASHES_FILE = "sha256.json"
# A model folder has one of them: ours, Marian, FSMT, M2M-100.
TOKENIZER_FILES = ("tokenizer.json", "source.spm", "merges.txt", "sentencepiece.bpe.model")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")  # as transformers names them
_MODEL_FILES = (*_WEIGHTS, "config.json", "generation_config.json", "tokenizer_config.json")
_LOCK = ".lock"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # such errors name no file


@contextmanager
def atomic_folder(folder: str | Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a temporary folder and move its files into `folder` if the block succeeds.

    Files of the same name are replaced, other files in `folder` stay. The weights of a model are removed first and
    moved last, so a process that is killed leaves all files of one model or a folder without weights. If the block
    fails, `folder` is not touched. All files follow the umask.

    Args:
        mode: Who may use a new folder and its files, as far as the umask permits it.

    Raises:
        OSError: a file cannot be written, for example because the disk is full.
    """
    folder = Path(folder)
    refuse_dangling_link(folder)
    # A mount point has another file system than its parent, which may also be read-only.
    parent = folder if folder.exists() else folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    temporary = parent / f"{temporary_prefix(folder)}{secrets.token_hex(4)}"
    temporary.mkdir(mode)
    try:
        yield temporary
        follow_umask(temporary)
        if folder.exists():
            _move_files(temporary, folder)
        else:
            os.replace(temporary, folder)
    except SafetensorError as error:
        raise OSError(f"Cannot write the weights to {folder}: {error}") from error
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(f"Cannot write {folder}: {os.strerror(error.errno)}. Make room there.") from error
    except Exception as error:
        if type(error) is Exception and "os error" in str(error):  # the tokenizers library raises no other type
            raise OSError(f"Cannot write the tokenizer to {folder}: {error}.") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_json_lines(path: Path) -> list[Any]:
    """Return the values of a file with JSON in each line, without a truncated last line.

    Raises:
        OSError: there is no such file.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def refuse_dangling_link(folder: Path) -> None:
    """Refuse a link to a folder that does not exist.

    Raises:
        FileNotFoundError: it is one.
    """
    if folder.is_symlink() and not folder.exists():
        found = f"{folder} is a link to {os.readlink(folder)}, which does not exist"
        raise FileNotFoundError(f"The output must be a folder, but {found}. Create that folder, or choose another.")


def check_output_dir_is_empty(output_dir: str | Path) -> None:
    """Check that `output_dir` does not exist or is an empty folder.

    Raises:
        FileNotFoundError: it is a link to a folder that does not exist.
        FileExistsError: it is a file, or a folder that is not empty.
    """
    output_dir = Path(output_dir)
    refuse_dangling_link(output_dir)
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        found = f"{output_dir} is not empty" if output_dir.is_dir() else f"{output_dir} is a file"
        raise FileExistsError(f"The output must be a new or an empty folder, but {found}. Choose another folder.")


def check_output_dir(output_dir: str | Path, own: Sequence[str] = (), replaced: Sequence[str] = ()) -> None:
    """Refuse a folder with files of others, before a command writes into it.

    Hidden files, and folders of other names than the command writes, are left alone.

    Args:
        own: Names of files that only this command writes together: where all are, the folder is its own.
        replaced: Patterns of the folders that the command would replace.

    Raises:
        FileExistsError: it is a file, or has files of others.
        FileNotFoundError: it is a link to a folder that does not exist.
    """
    folder = Path(output_dir)
    refuse_dangling_link(folder)
    if not folder.exists() or (own and all((folder / name).is_file() for name in own)):
        return
    rule = "The output must be a new folder, an empty one, or one that this command wrote"
    if not folder.is_dir():
        raise FileExistsError(f"{rule}, but {folder} is a file. Choose another folder.")
    for path in sorted(folder.iterdir()):
        is_kept = path.name.startswith(".") or (path.is_dir() and not any(map(path.match, replaced)))
        if not is_kept:
            raise FileExistsError(f"{rule}, but {folder} has {path.name}. Choose another folder.")


def check_outputs(outputs: Iterable[str | Path], inputs: Iterable[str | Path | int]) -> None:
    """Refuse an output file that is a folder, one of the inputs, also by another name or a link, or another output.

    Args:
        inputs: Files and folders, of which some need not exist; or numbers of open files.

    Raises:
        ValueError: the message names both.
    """
    written: list[Path] = []
    given = [each for each in inputs if os.path.exists(each)]
    for output in map(Path, outputs):
        if output.is_dir():
            raise ValueError(f"The output must be a file, but {output} is a folder. Name a file.")
        if output.suffix.lower() in BINARY_ENDINGS:
            rule = f"An output is text, also compressed as {', '.join(COMPRESSIONS)}"
            raise ValueError(f"{rule}, but the name {output} is one of another format. Choose another ending.")
        same = next((each for each in given if _is_same_file(output, each)), None)
        if same is not None:
            name = "standard input" if same == 0 else same
            rule = "The output must be another file than the inputs"
            raise ValueError(f"{rule}, but {output} is the same as {name}. Choose another.")
        if output.resolve() in written and not output.is_char_device():
            raise ValueError(f"Each output must be another file, got {output} twice. Choose another.")
        written.append(output.resolve())


def refuse_existing_files(outputs: Iterable[str | Path]) -> None:
    """Refuse to replace a file that holds something. Devices and pipes are written to.

    Raises:
        FileExistsError: the message names it.
    """
    for path in map(Path, outputs):
        if path.is_file() and path.stat().st_size:
            rule = "The output must be a new file"
            raise FileExistsError(f"{rule}, but {path} exists. Choose another, or replace it by --overwrite.")


def _is_same_file(output: Path, other: str | Path | int) -> bool:
    """Tell whether a file is another one, or belongs to the model in a folder. A terminal is both input and output."""
    is_of_model = output.suffix == ".safetensors" or output.name in (*_MODEL_FILES, *TOKENIZER_FILES)
    if os.path.isdir(other):
        return is_of_model and output.is_file() and os.path.samefile(output.parent, other)
    return output.is_file() and os.path.samefile(output, other)


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Hold a folder for this process, and create it if it is missing. A crash releases it.

    In the end it is deleted if it is empty and was not when the process took it.

    Raises:
        ValueError: another process holds it.
        OSError: it cannot be written.
    """
    folder = Path(folder)
    was_empty = folder.is_dir() and not any(folder.iterdir())
    folder.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock, Timeout  # which imports asyncio

    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        found = f"Only one run may use {folder} at a time, but another one is"
        raise ValueError(f"{found}. Wait for it, stop it, or choose another output.") from None
    try:
        yield
    finally:
        is_unused = not was_empty and folder.is_dir() and [path.name for path in folder.iterdir()] == [_LOCK]
        if is_unused:
            with suppress(PermissionError):  # Windows, where releasing deletes it
                (folder / _LOCK).unlink()
        lock.release()
        if is_unused:
            with suppress(OSError):  # another process has come
                folder.rmdir()


def temporary_prefix(folder: Path) -> str:
    """Return how the names of the temporary folders of `atomic_folder(folder)` begin."""
    return f".{folder.absolute().name}.tmp-"


def follow_umask(folder: Path) -> None:
    """Give the files of `folder` the mode of ordinary new files: libraries create some that only their owner reads."""
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _move_files(temporary: Path, folder: Path) -> None:
    new = {path.name for path in temporary.iterdir()}
    if not new.isdisjoint(_WEIGHTS):
        delete_weights(folder)
    for name in sorted(new, key=lambda name: (name in _WEIGHTS, name)):
        os.replace(temporary / name, folder / name)


def has_weights(folder: Path) -> bool:
    """Return whether `folder` holds a model that transformers can load."""
    return any((folder / name).exists() for name in _WEIGHTS)


def delete_weights(folder: Path) -> None:
    """Delete the weights of the model in `folder`, the files that make it a model first."""
    for name in _WEIGHTS:
        (folder / name).unlink(missing_ok=True)
    for shard in folder.glob("model-*-of-*.safetensors"):
        shard.unlink()


def save_model_folder(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", folder: str | Path, **texts: str
) -> Path:
    """Write weights (safetensors), configurations and tokenizer as one model folder of transformers, atomically.

    Args:
        texts: More files of the folder: JSON text by name, without the suffix `.json`.
    """
    with atomic_folder(folder) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for name, text in texts.items():
            (temporary / f"{name}.json").write_text(text, encoding="utf-8")
    return Path(folder)


def write_text_atomically(path: str | Path, text: str | Iterable[str], mode: int = 0o666) -> Path:
    r"""Write `text` (UTF-8, lines end with `\n`) to a temporary file beside `path`, then rename it to `path`.

    Missing parent folders are created. Of a link, the file to which it leads is replaced. A pipe or a device cannot be
    replaced and is written directly. A file whose name ends in `.gz`, `.xz`, `.bz2` or `.zst` is compressed.

    Args:
        text: The content, in one piece or in several, which need not fit into memory together.
        mode: Who may use the file, as far as the umask permits it.

    Raises:
        OSError: the file cannot be written; `path` has its old content.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pieces = [text] if isinstance(text, str) else text
    if path.exists() and not path.is_file():
        _write_text(path, pieces, ending=compression_of(path))
    else:
        _replace_text(path.resolve(), pieces, mode, compression_of(path))
    return path


def _replace_text(path: Path, pieces: Iterable[str], mode: int = 0o666, ending: str = "") -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write_text(temporary, pieces, mode, ending)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def update_json(path: str | Path, entries: Mapping[str, Any]) -> None:
    """Set entries of the JSON object in a file, and keep the others. A link, as in the Hub's cache, becomes a file.

    Raises:
        OSError: there is no such file, or it cannot be written.
        ValueError: it is not JSON.
    """
    content = json.loads(Path(path).read_text(encoding="utf-8")) | entries
    _replace_text(Path(path), [json.dumps(content, indent=2, sort_keys=True) + "\n"])


def _write_text(path: Path, pieces: Iterable[str], mode: int = 0o666, ending: str = "") -> None:
    compress = COMPRESSIONS.get(ending, lambda file, mode: nullcontext(file))
    with open(path, "wb", opener=partial(os.open, mode=mode)) as file, compress(file, "wb") as stream:
        for piece in pieces:
            stream.write(piece.encode())


def decode_text(content: bytes, name: str) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises:
        ValueError: It is not UTF-8; the message gives `name` and the line, or the encoding if it is UTF-16.
    """
    refuse_utf_16(content[:HEAD_BYTES], name)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise not_utf_8_error(name, line, f"the byte 0x{content[error.start]:02x}") from None


def not_utf_8_error(name: str | Path, line: int, found: str, way_out: str = "") -> ValueError:
    """Return the error for text that is not UTF-8.

    Args:
        found: What the line has, such as `the byte 0xe4`.
        way_out: What to do otherwise than to convert the file.
    """
    hint = f"Convert the file, for example with `iconv -f latin1 -t utf-8`{way_out}."
    return ValueError(f"{name} must be UTF-8, but line {line} has {found} where none can be. {hint}")


HEAD_BYTES = 4096  # of a text, from which `refuse_utf_16` tells its encoding
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Zeros in UTF-16, in the units of two bytes: spaces, line ends and letters up to U+00FF have one.
_LEAST_ZEROS = 0.01
_ZEROS_RATIO = 5  # how many times as many zeros are on one side as on the other


def refuse_utf_16(head: bytes, name: str | Path) -> None:
    """Refuse UTF-16 and UTF-32, given the first bytes of a text.

    Without a byte order mark, UTF-16 shows by its zeros, which are all at even or all at odd places.

    Raises:
        ValueError: It is in this encoding; the message names it.
    """
    found = next((encoding for mark, encoding in _BYTE_ORDER_MARKS.items() if head.startswith(mark)), None)
    may_be_utf_8 = _is_utf_8(head)
    low, high = head[::2], head[1::2]
    for encoding, line_end, upper, lower in (("UTF-16LE", b"\n\0", high, low), ("UTF-16BE", b"\0\n", low, high)):
        if upper.count(0) <= max(_LEAST_ZEROS * len(upper), _ZEROS_RATIO * lower.count(0)):
            continue
        # What may be UTF-8 as well is of scripts up to U+1FFF. Bytes of UTF-8 below 0x20 are rare.
        is_script = sum(byte < 0x20 for byte in upper) > len(upper) / 2
        if not may_be_utf_8 or (is_script and head.count(line_end) == head.count(b"\n")):
            found = found or encoding
    if found is not None:
        hint = f"Convert the file: `iconv -f {found} -t UTF-8 OLD > NEW`."
        raise ValueError(f"{name} must be UTF-8, but it is {found}. {hint}")


def _is_utf_8(head: bytes) -> bool:
    """Return whether bytes are the beginning of UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_hashes(folder: Path) -> None:
    """Write the SHA-256 of every file of `folder` to `HASHES_FILE` in it, for `find_damage`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): hash_file(path) for path in paths}
    (folder / HASHES_FILE).write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


def find_damage(folder: Path) -> str | None:
    """Compare the files of a folder with the hashes that `write_hashes` stored. Return the first mismatch, or None."""
    try:
        hashes = json.loads((folder / HASHES_FILE).read_text(encoding="utf-8"))
        damaged = next((name for name, value in hashes.items() if hash_file(folder / name) != value), None)
    except FileNotFoundError as error:
        return f"{Path(error.filename).relative_to(folder)} is missing"
    except (ValueError, AttributeError):
        return f"{HASHES_FILE} is damaged"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    return None if damaged is None else f"{damaged} is damaged"


def cached_folder(cache_dir: str | Path, name: str, write: Callable[[Path], None], mode: int = 0o777) -> Path:
    """Return the folder `name` of a cache, filled by `write` if it does not exist yet or is damaged.

    If several processes need the same folder, one writes it and the others wait. The folder is renamed into place once
    it is complete, so a killed process leaves no incomplete entry.

    Args:
        mode: See [`atomic_folder`].

    Raises:
        OSError: `cache_dir` cannot be written.
    """
    folder = Path(cache_dir) / name
    if folder.is_dir() and find_damage(folder) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"`cache_dir` must be a folder that can be written, got {cache_dir}: {error.strerror}. Choose another."
        ) from error
    from filelock import FileLock  # which imports asyncio

    with FileLock(f"{folder}.lock"):
        for leftover in folder.parent.glob(f"{temporary_prefix(folder)}*"):  # its writer is dead: we hold the lock
            logger.info("Removing the unfinished %s.", leftover)
            shutil.rmtree(leftover, ignore_errors=True)
        if folder.exists():
            damage = find_damage(folder) if folder.is_dir() else "it is a file"
            if damage is None:  # written while this process waited
                return folder
            logger.warning("The cache entry %s is damaged (%s). It is built again.", folder, damage)
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
        with atomic_folder(folder, mode) as temporary:
            write(temporary)
            write_hashes(temporary)
    return folder
