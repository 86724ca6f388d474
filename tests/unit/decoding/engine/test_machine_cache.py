"""The cache of this machine: whose folders code may be loaded from."""

import os

import pytest

from vanilla_transformer.decoding.engine.machine_cache import find_foreign


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the folder of a compiled step in a cache."""
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "compiled_steps" / "abc"
    folder.mkdir(parents=True)
    (folder / "step.pt2").write_bytes(b"code")
    return folder


def test_find_foreign_finds_nothing_in_own_folders(package):
    assert find_foreign(package) is None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_find_foreign_finds_folders_that_others_may_write(package, level):
    folder = [package, *package.parents][level]
    folder.chmod(0o777)
    assert find_foreign(package) == folder


def test_find_foreign_finds_files_that_others_may_write(package):
    (package / "step.pt2").chmod(0o666)
    assert find_foreign(package) == package / "step.pt2"


def test_find_foreign_finds_links(package, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (package / "step.pt2").rename(elsewhere)
    (package / "step.pt2").symlink_to(elsewhere)
    assert find_foreign(package) == package / "step.pt2"


def test_find_foreign_finds_folders_of_other_users(package, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert find_foreign(package) is not None
