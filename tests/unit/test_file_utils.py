"""Folders on disk are whole or absent."""

import pytest

from vanilla_transformer.file_utils import atomic_folder


def test_a_folder_that_fails_half_way_is_not_there(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "model") as aside:
        (aside / "half").write_text("...")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_fails_half_way_leaves_the_old_one_alone(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("old")
    with pytest.raises(RuntimeError), atomic_folder(folder) as aside:
        (aside / "weights").write_text("half of the n")
        raise RuntimeError
    assert (folder / "weights").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_files_replace_those_of_their_name_and_leave_others(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes").write_text("mine")
    with atomic_folder(tmp_path / "model") as aside:
        (aside / "weights").write_text("new")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"notes", "weights"}
