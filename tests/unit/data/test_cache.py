"""The cache: an entry is there whole or not at all, and is made once."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vanilla_transformer.data.cache import cached, digest, file_digest


def test_an_entry_is_written_once(tmp_path):
    written = []

    def write(folder):
        written.append(folder)
        (folder / "a").write_text("text")

    for _ in range(2):
        assert (cached(tmp_path, "entry", write) / "a").read_text() == "text"
    assert len(written) == 1


def test_an_error_while_writing_leaves_no_entry(tmp_path):
    def fail(folder):
        (folder / "a").write_text("half")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        cached(tmp_path, "entry", fail)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_a_killed_writer_leaves_is_neither_used_nor_kept(tmp_path):
    def die(folder):
        (folder / "a").write_text("half")
        os._exit(9)

    child = os.fork()
    if not child:
        cached(tmp_path, "entry", die)
    os.waitpid(child, 0)
    assert [path.name for path in tmp_path.glob(".entry.*/a")] == ["a"]

    folder = cached(tmp_path, "entry", lambda folder: (folder / "a").write_text("whole"))
    assert (folder / "a").read_text() == "whole"
    assert not list(tmp_path.glob(".entry.*"))


def test_of_several_that_want_an_entry_one_writes_and_the_others_wait(tmp_path):
    written = []

    def write(folder):
        written.append(folder)
        (folder / "a").write_text("half")
        time.sleep(0.2)
        (folder / "a").write_text("whole")

    with ThreadPoolExecutor(4) as threads:
        entries = [threads.submit(cached, tmp_path, "entry", write) for _ in range(4)]
        assert [(entry.result() / "a").read_text() for entry in entries] == ["whole"] * 4
    assert len(written) == 1


def test_a_file_is_named_by_its_content_alone(tmp_path):
    for name, text in (("a", "text"), ("b", "text"), ("c", "texts")):
        (tmp_path / name).write_text(text)
    os.utime(tmp_path / "b", (0, 0))
    assert file_digest(tmp_path / "a") == file_digest(tmp_path / "b") != file_digest(tmp_path / "c")


def test_equal_values_have_one_name_whatever_their_order():
    assert digest({"a": 1, "b": [None]}) == digest({"b": [None], "a": 1}) != digest({"a": 1, "b": []})
