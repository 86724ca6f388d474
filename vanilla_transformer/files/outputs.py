"""Take the folder of an output, and refuse outputs that would overwrite files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.atomic import recover_folders, refuse_dangling_link
from vanilla_transformer.files.formats import DOCUMENT_ENDINGS, FORMAT_OF_ENDING
from vanilla_transformer.files.inputs import BINARY_ENDINGS, COMPRESSIONS
from vanilla_transformer.files.locks import LOCK, acquire_lock, find_holder, marker_of
from vanilla_transformer.files.model_folders import MODEL_FILES, TOKENIZER_FILES
from vanilla_transformer.files.private_folders import is_own
from vanilla_transformer.files.temporary import TEMPORARY, create_folder


def check_output_dir_is_empty(output_dir: str | Path) -> None:
    """Check that `output_dir` does not exist or is an empty folder."""
    output_dir = Path(output_dir)
    refuse_dangling_link(output_dir)
    recover_folders(output_dir)
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        problem = f"{output_dir} is a file"
        if output_dir.is_dir():
            problem = f"{output_dir} is not empty"
        raise UserFileError(
            f"The output must be a new or an empty folder, but {problem}. Choose another folder."
        )


def check_output_dir(
    output_dir: str | Path, own: Sequence[str] = (), replaced: Sequence[str] = ()
) -> None:
    """Refuse a folder with files of others, before a command writes into it.

    Hidden files, and folders of other names than the command writes, are left alone.

    Args:
        own: Names of files that only this command writes together: where all are, the folder is its
            own.
        replaced: Patterns of the folders that the command would replace.
    """
    folder = Path(output_dir)
    refuse_dangling_link(folder)
    if not folder.exists() or (own and all((folder / name).is_file() for name in own)):
        return
    requirement = "The output must be a new folder, an empty one, or one that this command wrote"
    if not folder.is_dir():
        raise UserFileError(f"{requirement}, but {folder} is a file. Choose another folder.")
    for path in sorted(folder.iterdir()):
        is_replaced = any(map(path.match, replaced))
        is_kept = path.name.startswith(".") or (path.is_dir() and not is_replaced)
        if not is_kept:
            raise UserFileError(
                f"{requirement}, but {folder} has {path.name}. Choose another folder."
            )


def check_outputs(outputs: Iterable[str | Path], inputs: Iterable[str | Path | int]) -> None:
    """
    Refuse an output file that is a folder, one of the inputs, also by another name or a link, or
    another output.

    Args:
        inputs: Files and folders, of which some need not exist; or numbers of open files.
    """
    written: list[Path] = []
    inputs = [*inputs]
    existing = [source for source in inputs if os.path.exists(source)]
    for output in map(Path, outputs):
        with suppress(FileNotFoundError, NotADirectoryError):
            output.stat()  # refuses links that lead to themselves
        if output.is_dir():
            raise UserError(f"The output must be a file, but {output} is a folder. Name a file.")
        ending = output.suffix.lower()
        is_of_input = any(str(source).lower().endswith(ending) for source in inputs)
        is_document = ending in DOCUMENT_ENDINGS and is_of_input
        is_binary = ending in FORMAT_OF_ENDING and not FORMAT_OF_ENDING[ending].is_text
        if (is_binary or ending in BINARY_ENDINGS) and not is_document:
            requirement = f"An output is text, also compressed as {', '.join(COMPRESSIONS)}"
            raise UserError(
                f"{requirement}, but the name {output} is one of another format. Choose "
                "another ending."
            )
        file_names = (*MODEL_FILES, *TOKENIZER_FILES)
        is_of_model = output.suffix == ".safetensors" or output.name in file_names
        # A model is a folder among the inputs.
        replaced = [output.parent, output] if is_of_model else [output]
        same = None
        if output.is_file():  # a terminal is both input and output
            for name in existing:
                if any(os.path.samefile(path, name) for path in replaced):
                    same = name
                    break
        if same is not None:
            name = "standard input" if same == 0 else same
            requirement = "The output must be another file than the inputs"
            raise UserError(f"{requirement}, but {output} is the same as {name}. Choose another.")
        if output.resolve() in written and not output.is_char_device():
            raise UserError(
                f"Each output must be another file, got {output} twice. Choose another."
            )
        written.append(output.resolve())


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Hold a folder for this process, and create it if it is missing. A crash releases it.

    In the end it is deleted if it is empty and was not when the process took it.
    """
    folder = Path(folder)
    was_empty = folder.is_dir() and not any(folder.iterdir())
    create_folder(folder)
    try:
        lock = acquire_lock(folder / LOCK, wait=False).lock
    except TimeoutError:
        problem = f"Only one run may use {folder} at a time, but {find_holder(folder / LOCK)} is"
        raise UserError(f"{problem}. Wait for it, stop it, or choose another output.") from None
    try:
        leftovers = [*folder.glob(TEMPORARY.format("*"))]
        outputs = {*folder.iterdir()}
        for leftover in leftovers:
            output_name = leftover.name[1:].rpartition(".")[0]
            outputs.add(leftover.with_name(output_name))
        for output in (folder, *outputs):
            recover_folders(output)
        for leftover in leftovers:  # its writer is dead
            if leftover.is_file() and is_own(leftover):
                leftover.unlink()
        yield
    finally:
        names_of_lock = {LOCK, marker_of(Path(LOCK)).name}
        names = {path.name for path in folder.glob("*")}
        is_unused = not was_empty and names <= names_of_lock
        if is_unused:
            with suppress(PermissionError):  # Windows, where releasing deletes it
                (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        if is_unused:
            with suppress(OSError):  # another process has come
                folder.rmdir()
