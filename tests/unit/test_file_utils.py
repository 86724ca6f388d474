"""Atomic folders and files."""

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vanilla_transformer.file_utils import atomic_folder, cached_folder, write_text_atomically


def test_atomic_folder_leaves_nothing_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "model") as temporary:
        (temporary / "half").write_text("...")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_atomic_folder_keeps_the_old_files_after_an_error(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("old")
    with pytest.raises(RuntimeError), atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("half of the n")
        raise RuntimeError
    assert (folder / "weights").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_atomic_folder_replaces_files_of_the_same_name_only(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes").write_text("mine")
    (tmp_path / "model" / "weights").write_text("old")
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "weights").write_text("new")
    assert {path.name: path.read_text() for path in (tmp_path / "model").iterdir()} == {
        "notes": "mine",
        "weights": "new",
    }


def test_write_text_atomically_creates_folders_and_replaces_the_file(tmp_path):
    path = tmp_path / "runs" / "notes.txt"
    assert write_text_atomically(path, "old\n") == path
    write_text_atomically(path, "über\n")
    assert path.read_bytes() == "über\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_write_text_atomically_follows_the_umask(tmp_path):
    previous = os.umask(0o022)
    try:
        mode = write_text_atomically(tmp_path / "notes.txt", "text").stat().st_mode
    finally:
        os.umask(previous)
    assert stat.S_IMODE(mode) == 0o644


def test_write_text_atomically_keeps_the_old_file_after_an_error(tmp_path, monkeypatch):
    path = write_text_atomically(tmp_path / "notes.txt", "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("vanilla_transformer.file_utils.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_text_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_text_atomically_writes_into_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_text_atomically(pipe, "text")
    reader.join(timeout=10)
    assert received == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_cached_folder_is_written_once(tmp_path):
    written = []

    def write(folder):
        written.append(folder)
        (folder / "a").write_text("text")

    for _ in range(2):
        assert (cached_folder(tmp_path, "entry", write) / "a").read_text() == "text"
    assert len(written) == 1


def test_cached_folder_leaves_nothing_if_writing_fails(tmp_path):
    def fail(folder):
        (folder / "a").write_text("half")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        cached_folder(tmp_path, "entry", fail)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_cached_folder_is_written_by_one_of_several_threads(tmp_path):
    written = []

    def write(folder):
        written.append(folder)
        (folder / "a").write_text("half")
        time.sleep(0.2)
        (folder / "a").write_text("whole")

    with ThreadPoolExecutor(4) as threads:
        entries = [threads.submit(cached_folder, tmp_path, "entry", write) for _ in range(4)]
        assert [(entry.result() / "a").read_text() for entry in entries] == ["whole"] * 4
    assert len(written) == 1
