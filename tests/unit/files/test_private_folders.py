"""Folders from which code may be loaded: whose they are, who may write them, and how they are
created.
"""

import os
from pathlib import Path

import pytest

from vanilla_transformer.errors import UserFileError
from vanilla_transformer.files import private_folders
from vanilla_transformer.files.private_folders import (
    check_inductor_caches,
    create_private_folder,
    find_unsafe,
)

STRANGER = 65534
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no modes")
as_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can give files away"
)


@pytest.fixture
def file(tmp_path):
    """Return a file in two folders of a cache, in a parent of it."""
    (tmp_path / "parent" / "cache" / "entry").mkdir(parents=True, mode=0o700)
    file = tmp_path / "parent" / "cache" / "entry" / "code"
    file.write_bytes(b"code")
    return file


@pytest.fixture
def cache(file):
    return file.parent.parent


@pytest.fixture
def group(monkeypatch):
    """Let the group of all files be that of the user alone, as far as this package is concerned."""
    monkeypatch.setattr(private_folders, "_is_of_user_alone", lambda path, group: True)


@pytest.fixture
def foreign_group(monkeypatch):
    monkeypatch.setattr(private_folders, "_is_of_user_alone", lambda path, group: False)


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_find_unsafe_accepts_own_folders(file, cache, mode):
    for level in (cache, file.parent):
        level.chmod(mode)
    assert find_unsafe(file, cache) is None
    assert find_unsafe(cache, cache) is None
    assert find_unsafe(file) is None


def test_find_unsafe_accepts_what_does_not_exist(file, cache):
    assert find_unsafe(cache / "other" / "code", cache) is None
    assert find_unsafe(file.parent.parent.parent / "other" / "entry") is None


@as_root
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_find_unsafe_finds_levels_of_another_user(file, cache, level):
    path = [file, *file.parents][level]
    os.chown(path, STRANGER, -1)
    assert find_unsafe(file, cache) == find_unsafe(file) == f"{path} belongs to user {STRANGER}"


def test_find_unsafe_finds_the_files_of_another_user(file, cache, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to user" in find_unsafe(file, cache)


@pytest.mark.parametrize("bits", [0o020, 0o002, 0o022])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_find_unsafe_finds_levels_others_may_write(file, cache, group, level, bits):
    path = [file, *file.parents][level]
    mode = path.stat().st_mode & 0o777 | bits
    path.chmod(mode)
    command = f"run `chmod -R go-w {cache}`"
    expected = f"other users can write {path} (mode {mode:o}): {command}"
    assert find_unsafe(file, cache) == expected


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_find_unsafe_finds_parents_others_may_write(file, cache, foreign_group, mode):
    cache.parent.chmod(mode)
    command = f"run `chmod go-w {cache.parent}`"
    expected = f"other users can write {cache.parent} (mode {mode:o}): {command}"
    assert find_unsafe(file, cache) == expected
    cache.parent.chmod(mode | 0o1000)  # as of /tmp, where users cannot rename the folders of others
    assert find_unsafe(file, cache) is None


def test_find_unsafe_refuses_a_cache_that_is_a_shared_folder(file, cache):
    cache.chmod(0o1777)
    assert "other users can write" in find_unsafe(file, cache)


def test_find_unsafe_lets_the_group_of_the_user_alone_write_parents(file, cache, group):
    cache.parent.chmod(0o770)
    assert find_unsafe(file, cache) is None
    cache.parent.chmod(0o777)
    assert find_unsafe(file, cache) is not None


@pytest.mark.parametrize(
    ("name", "members", "lists", "expected"),
    [
        ("ann", [], [], True),
        ("ann", ["ann"], ["user.other"], True),
        ("ann", ["ann", "bob"], [], False),
        ("staff", [], [], False),
        ("ann", [], ["system.posix_acl_access"], False),
    ],
)
def test_group_is_of_the_user_alone(monkeypatch, name, members, lists, expected):
    import grp
    import pwd

    user = pwd.struct_passwd(("ann", "x", 7, 8, "", "", ""))

    def group_of(number):
        return grp.struct_group((name, "x", number, members))

    monkeypatch.setattr(pwd, "getpwuid", lambda number: user)
    monkeypatch.setattr(grp, "getgrgid", group_of)
    monkeypatch.setattr(os, "listxattr", lambda path: lists, raising=False)
    assert private_folders._is_of_user_alone(Path("any"), 8) is expected
    assert not private_folders._is_of_user_alone(Path("any"), 9)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_find_unsafe_finds_links_in_a_cache(file, cache, tmp_path, level):
    path = [file, *file.parents][level]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert find_unsafe(file, cache) == f"{path} is a link"
    assert find_unsafe(file) is None


def test_find_unsafe_finds_other_things_than_files(file, cache):
    file.unlink()
    os.mkfifo(file, 0o600)
    assert find_unsafe(file, cache) == f"{file} is no file"


@pytest.mark.parametrize("to", ["absolute", "relative"])
def test_find_unsafe_follows_links_above_a_cache(file, cache, tmp_path, foreign_group, to):
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link"
    link.symlink_to(cache.parent if to == "absolute" else Path("..") / "parent")
    linked = link / "cache"
    assert find_unsafe(linked / "entry" / "code", linked) is None
    cache.parent.chmod(0o777)
    assert str(cache.parent) in find_unsafe(linked / "entry" / "code", linked)
    cache.parent.chmod(0o700)
    link.parent.chmod(0o777)
    assert str(link.parent) in find_unsafe(linked / "entry" / "code", linked)


@as_root
def test_find_unsafe_finds_links_of_another_user(file, cache, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(cache.parent)
    os.lchown(shared / "link", STRANGER, -1)
    linked = shared / "link" / "cache"
    assert find_unsafe(linked, linked) == f"{shared / 'link'} belongs to user {STRANGER}"


def test_find_unsafe_ends_at_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "too many links" in find_unsafe(tmp_path / "a" / "cache")


def test_find_unsafe_accepts_all_on_windows(file, cache, monkeypatch):
    file.chmod(0o777)
    monkeypatch.delattr(os, "geteuid")
    assert find_unsafe(file, cache) is None


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_create_private_folder_closes_it_and_its_new_parents_to_others(tmp_path, umask):
    previous = os.umask(umask)
    try:
        folder = tmp_path / "new" / "cache" / "entry"
        assert create_private_folder(folder, tmp_path / "new" / "cache") is None
    finally:
        os.umask(previous)
    levels = (folder, *folder.parents[:2])
    assert [level.stat().st_mode & 0o777 for level in levels] == [0o700] * 3


@as_root
def test_create_private_folder_creates_nothing_in_folders_of_others(tmp_path):
    folder = tmp_path / "foreign" / "cache"
    folder.parent.mkdir()
    os.chown(folder.parent, STRANGER, -1)
    assert create_private_folder(folder, folder) == f"{folder.parent} belongs to user {STRANGER}"
    assert not folder.exists()


def test_create_private_folder_knows_who_created_it(tmp_path, monkeypatch):
    folder = tmp_path / "cache"

    def mkdir(path, mode, exist_ok):
        if not os.path.isdir(path):
            os.mkdir(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    folder_of_others = os.umask(0)
    try:
        assert "other users can write" in create_private_folder(folder, folder)
    finally:
        os.umask(folder_of_others)


@pytest.fixture
def inductor(tmp_path, monkeypatch):
    """Return the folder in which inductor keeps code by default."""
    from torch._inductor.runtime import cache_dir_utils

    folder = tmp_path / "torchinductor_me"
    monkeypatch.setattr(cache_dir_utils, "default_cache_dir", lambda: str(folder))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_inductor_caches_are_of_the_user_alone(inductor, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    check_inductor_caches()
    for folder in (inductor, tmp_path / "other"):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
def test_inductor_caches_are_safe_from_others(inductor, tmp_path, monkeypatch, name):
    folder = inductor
    if name != "TMPDIR":
        folder = tmp_path / "other"
        monkeypatch.setenv(name, str(folder))
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UserFileError) as raised:
        check_inductor_caches()
    unsafe = f"other users can write {folder} (mode 777): run `chmod go-w {folder}`"
    remedy = f"{name} can name another folder, which only you can write."
    assert str(raised.value) == f"Torch keeps compiled code in {folder}, but {unsafe}. {remedy}"
