"""The cache after its writer was killed."""

import os

from vanilla_transformer.files.hashes import cached_folder


def test_cached_folder_removes_files_of_a_killed_writer(tmp_path):
    def die(folder):
        (folder / "a").write_text("half")
        os._exit(9)

    child = os.fork()
    if not child:
        cached_folder(tmp_path, "entry", die)
    os.waitpid(child, 0)
    assert [path.name for path in tmp_path.glob(".entry.*/**/a")] == ["a"]

    folder = cached_folder(tmp_path, "entry", lambda folder: (folder / "a").write_text("whole"))
    assert (folder / "a").read_text() == "whole"
    assert not list(tmp_path.glob(".entry.*"))
