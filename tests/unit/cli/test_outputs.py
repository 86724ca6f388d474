"""Flags that name a file say whether a command reads or writes it, so that no command replaces what
it reads.
"""

import os
import sys

import pytest

from vanilla_transformer.cli import COMMANDS, find_command
from vanilla_transformer.cli.flags import CommandArguments, OverwriteArguments
from vanilla_transformer.files.outputs import check_output_dir, check_outputs, lock_folder
from vanilla_transformer.training.run_arguments import KEYS
from vanilla_transformer.user_input.schemas import INPUT, OUTPUT, parts_of

# Flags with text that names no file.
OTHERS = {"name", "corpus", "repo_id", "sentence", "sentences", "examples", "translation"}
OTHERS |= {"title", "message", "tag", "revision", "base_url", "host", "direction"}
OTHERS |= {"directions", "languages", "source_language", "mbr", "target_language"}
OTHERS |= {"source_format", "target_format", "format", "join_lines", "device", "dtype"}
OTHERS |= {"precision", "workers", "engine", "metric", "tokenize", "paper_bleu", "term_mode"}
OTHERS |= {"sentence_splitter", "constraint", "target_prefix", "protect", "normalization"}
OTHERS |= {"cors", "hosts", "tokenizer_model", "pattern"}
OTHERS |= {"columns", "memory"}
OTHERS |= {"existing"}  # a file that the output may replace
# Folders, which their writers check, models of `serve`, and the start of the names of files.
OTHERS |= {"output_dir", "output", "model", "data", "text", "glossary", "suggestions", "folder"}


def commands_with_flags():
    modules = {sys.modules[find_command(name).__module__] for name in COMMANDS}
    classes = set()
    for module in modules:
        classes |= {value for value in vars(module).values() if isinstance(value, type)}
    return [schema for schema in classes if issubclass(schema, CommandArguments)]


def test_each_flag_with_text_is_an_output_an_input_or_no_file():
    unmarked = set()
    for schema in commands_with_flags():
        for name, field in schema.model_fields.items():
            parts = [*parts_of(field)]
            if str in parts and INPUT not in parts and OUTPUT not in parts:
                unmarked.add(name)
            assert OUTPUT not in parts or issubclass(schema, OverwriteArguments), schema
    assert unmarked - OTHERS - {*KEYS} == set()


def test_check_outputs_compares_files_and_not_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("text", "other"):
        (tmp_path / name).write_text("A\n")
    os.link("text", "hard")
    os.symlink("text", "soft")
    message = "must be another file than the inputs, but .* is the same as text. Choose"
    for output in ("text", "./text", "hard", "soft", tmp_path / "text"):
        with pytest.raises(ValueError, match=message):
            check_outputs([output], ["none", "text"])
    with pytest.raises(ValueError, match="must be a file, but . is a folder"):
        check_outputs(["."], [])
    with pytest.raises(ValueError, match="got new twice"):
        check_outputs(["new", "new"], [])
    os.symlink("loop", "loop")
    for output in ("loop", "loop/new"):
        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            check_outputs([output], [])
    check_outputs(["new", "other", "/dev/null", "/dev/null"], ["text", "none", "/dev/null", "."])


def test_check_outputs_knows_the_file_that_is_read_from_standard_input(tmp_path):
    (tmp_path / "text").write_text("A\n")
    with (tmp_path / "text").open() as file, pytest.raises(ValueError, match="is the same as"):
        check_outputs([tmp_path / "text"], [file.fileno()])


def test_check_output_dir_knows_its_own_files(tmp_path):
    check_output_dir(tmp_path / "new")
    check_output_dir(tmp_path)
    (tmp_path / "a").write_text("mine")
    (tmp_path / ".hidden").touch()
    message = "one that this command wrote, but .* has a. Choose another folder."
    with pytest.raises(OSError, match=message):
        check_output_dir(tmp_path, own=["a", "b"])
    check_output_dir(tmp_path, own=["a"])
    (tmp_path / "a").unlink()
    (tmp_path / "best-7").mkdir()
    check_output_dir(tmp_path)
    with pytest.raises(OSError, match="has best-7"):
        check_output_dir(tmp_path, replaced=["best-*"])


@pytest.mark.parametrize("exists", [False, True])
def test_lock_folder_holds_it_and_deletes_a_new_one_without_files(tmp_path, exists):
    folder = tmp_path / "folder"
    if exists:
        folder.mkdir()
    with (
        lock_folder(folder),
        pytest.raises(ValueError, match="Only one run may use"),
        lock_folder(folder),
    ):
        pass
    assert folder.exists() == exists
    with lock_folder(folder):
        (folder / "result").touch()
    assert (folder / "result").exists()
