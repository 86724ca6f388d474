"""Atomic and durable folders and files."""

import errno
import hashlib
import json
import os
import platform
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.decoding.corpus_shards import CorpusShards
from vanilla_transformer.decoding.pretrained import load_pretrained
from vanilla_transformer.files.atomic import atomic_folder, recover_folders, write_text_atomically
from vanilla_transformer.files.hashes import (
    cached_folder,
    cached_work,
    find_damage,
    hash_json,
    update_json,
    write_hashes,
)
from vanilla_transformer.files.model_folders import HASHES_FILE, has_weights
from vanilla_transformer.files.outputs import check_output_dir_is_empty, lock_folder
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.checkpoint import ResumeState, load_model_weights, save_checkpoint
from vanilla_transformer.training.metrics import append_entry


@pytest.mark.parametrize("old", [{}, {"weights": "old"}])
def test_atomic_folder_changes_nothing_after_an_error(tmp_path, old):
    folder = tmp_path / "new" / "model"
    for name, text in old.items():
        write_text_atomically(folder / name, text)
    with pytest.raises(RuntimeError), atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("half of the n")
        raise RuntimeError
    assert {path.name: path.read_text() for path in folder.glob("*")} == old
    assert [*tmp_path.rglob("*")] == ([folder.parent, folder, *folder.iterdir()] if old else [])


def test_write_text_replaces_the_file_of_a_link(tmp_path):
    path = tmp_path / "runs" / "notes.txt"
    assert write_text_atomically(path, "old\n") == path
    (tmp_path / "link").symlink_to(path)
    for name, text in ((path, "über\n"), (tmp_path / "link", "neu\n")):
        write_text_atomically(name, text)
        assert path.read_bytes() == text.encode() and [*path.parent.iterdir()] == [path]
    assert (tmp_path / "link").is_symlink()


def test_update_json_leaves_the_file_of_a_link_alone(tmp_path):
    """The cache of the Hub links to files that other revisions have, too."""
    (tmp_path / "blob").write_text("{}")
    (tmp_path / "config.json").symlink_to("blob")
    update_json(tmp_path / "config.json", {"a": 1})
    assert (tmp_path / "blob").read_text() == "{}"
    assert json.loads((tmp_path / "config.json").read_text()) == {"a": 1}


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

    monkeypatch.setattr("vanilla_transformer.files.atomic.os.replace", fail)
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
    assert cached_folder(tmp_path, "entry", write).is_dir() and len(written) == 1


def test_atomic_folder_needs_nothing_beside_existing_folder(tmp_path):
    folder = tmp_path / "mounted"
    folder.mkdir()
    with atomic_folder(folder) as temporary:  # the parent may be read-only or another file system
        assert temporary.is_relative_to(folder)
        (temporary / "notes").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["notes"]


OLD_NAMES = ["config.json", "model.safetensors", HASHES_FILE, "tokenizer.json"]
OLD = dict.fromkeys(OLD_NAMES, "old")
SHARDS = {f"model-0000{number}-of-00002.safetensors": "new" for number in (1, 2)}
NEW = {"config.json": "new", "generation_config.json": "new"} | SHARDS
NEW |= {"model.safetensors.index.json": "new", "tokenizer.json": "new"}


def write_model(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)


def read_model(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


class Killed(BaseException):
    """The process has been killed."""


def fail_at(patch, operation, number, fault):
    """Make a call of `os.replace`, `os.fsync` or `os.mkdir` fail. Return a list of the calls."""
    calls = []

    def failing(*args, of, original, **options):
        if of == operation:
            calls.append(args)
        if fault == "kill" and len(calls) >= number:
            raise Killed
        is_later = len(calls) > number and fault == "from then on"
        if of == operation and (len(calls) == number or is_later):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*args, **options)

    for name, original in (("replace", os.replace), ("fsync", os.fstat), ("mkdir", os.mkdir)):
        patch.setattr(os, name, partial(failing, of=name, original=original))
    if fault == "kill":
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
    return calls


REPLACEMENTS = [(OLD, NEW), (NEW | dict.fromkeys(NEW, "old"), OLD | dict.fromkeys(OLD, "new"))]


@pytest.mark.parametrize("old, new", REPLACEMENTS)
@pytest.mark.parametrize("operation", ["replace", "fsync", "mkdir"])
@pytest.mark.parametrize("fault", ["once", "from then on", "kill"])
def test_atomic_folder_stays_whole(tmp_path, monkeypatch, old, new, operation, fault):
    """Each operation fails in turn, on a full disk or as the process is killed, while a model
    replaces another one.
    """
    whole = [files | {"notes": "mine"} for files in (old, new)]
    for number in range(1, 50):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        write_model(folder, whole[0])
        with monkeypatch.context() as patch, suppress(OSError, Killed):
            calls = fail_at(patch, operation, number, fault)
            with atomic_folder(folder) as temporary:
                write_model(temporary, new)
        if len(calls) < number:
            break
        assert read_model(folder) in whole or not has_weights(folder)
        assert fault != "once" or (read_model(folder) in whole and not [*folder.glob(".*")])
        for lock in folder.glob(".*"):
            os.utime(lock, (0, 0))
        recover_folders(folder)
        assert read_model(folder) in whole and not [*folder.glob(".*")]
    assert 3 < number < 50 and read_model(folder) == whole[1]


class Operations:
    """Assert that files are synced before they get a name, and their folder before what they
    replace is deleted.
    """

    def __init__(self, patch, folder):
        self.folder, self.named, self.synced, self.left = folder, 0, {}, set()
        self.before = {path.stat().st_ino for path in folder.rglob("*")}
        for owner, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (shutil, "rmtree")):
            original = getattr(owner, name)
            patch.setattr(owner, name, partial(getattr(self, name), original))

    def fsync(self, original, descriptor):
        facts = os.fstat(descriptor)
        self.synced[facts.st_ino] = facts.st_mtime_ns
        self.left -= {path for path in self.left if path.stat().st_ino == facts.st_ino}
        original(descriptor)

    def replace(self, original, path, target):
        if ".tmp-" not in str(target):
            for file in (Path(path), *Path(path).rglob("*")):
                facts = file.stat()
                is_old = facts.st_ino in self.before
                is_synced = self.synced.get(facts.st_ino) == facts.st_mtime_ns
                assert is_old or is_synced, file
            self.left.add(Path(target).parent)
            self.named += 1
        original(path, target)

    def unlink(self, original, path, **options):
        assert options or not os.path.exists(path) or not self.left, path
        original(path, **options)

    def rmtree(self, original, path, **options):
        assert not self.left, path
        original(path, **options)


def replace_json(folder):
    write_text_atomically(folder / "new" / "a.json", "{}")
    update_json(folder / "new" / "a.json", {"a": 1})


def replace_model(folder):
    save_model_folder(tiny_model(), tiny_tokenizer(), folder / "new" / "model")
    save_model_folder(tiny_model(), tiny_tokenizer(), folder / "new" / "model")


def replace_cache_entry(folder):
    (cached_folder(folder, "entry", write_entry) / "a").write_text("damage")
    cached_folder(folder, "entry", write_entry)


def replace_checkpoint(folder):
    for _ in range(2):
        state = ResumeState({}, [], {"weight": torch.ones(2)}, {})
        save_checkpoint(tiny_model(), tiny_tokenizer(), state, folder / "run" / "checkpoint-1")


def complete_shards(folder):
    shards = CorpusShards(folder / "out.partial", {}, shard_lines=2)
    with shards.held(resume=False):
        shards.complete(["one", "two", "three"], lambda shard: shard.lines)
        write_text_atomically(folder / "out", shards.results(3))
        shards.delete()


@pytest.mark.parametrize(
    "write, names",
    [
        (replace_json, 2),
        (replace_model, 10),
        (replace_cache_entry, 2),
        (replace_checkpoint, 2),
        (complete_shards, 4),
    ],
)
def test_outputs_are_on_disk_before_old_ones_go(tmp_path, monkeypatch, write, names):
    with monkeypatch.context() as patch:
        operations = Operations(patch, tmp_path)
        write(tmp_path)
    assert operations.named >= names and not operations.left


def test_append_entry_is_on_disk(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    append_entry(tmp_path, {"step": 1})
    assert synced == [(tmp_path / "metrics.jsonl").stat().st_size]


def test_atomic_folder_removes_leftovers_of_killed_process(tmp_path):
    """Files of a process that lives stay."""
    left = tmp_path / ".[model].tmp-12ab12ab12ab12ab"
    write_text_atomically(left / ".lock", "")
    left.chmod(0o755)
    with atomic_folder(tmp_path / "[model]") as written, atomic_folder(tmp_path / "[model]"):
        assert written.exists() and not left.exists()


@pytest.mark.parametrize("files", [[], [".lock"], ["replaced/model"], ["whole/model", "new/model"]])
def test_atomic_folder_removes_leftovers_of_power_loss(tmp_path, files):
    """Deletions are not on the disk at once, so folders of a finished command may be there
    again.
    """
    left = tmp_path / ".model.tmp-12ab12ab12ab12ab"
    left.mkdir(0o700)
    for name in files:
        write_text_atomically(left / name, "old")
    os.utime(left, (0, 0))
    with atomic_folder(tmp_path / "model", replace=True) as temporary:
        (temporary / "config.json").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert read_model(tmp_path / "model") == {"config.json": "new"}


STRANGER = 65534  # `nobody`


def write_leftover(folder, name, **files):
    """Write the temporary folder of an interrupted command, and return it."""
    left = folder / f".{name}.tmp-0123456789abcdef"
    left.mkdir(0o700)
    for path, text in {".lock": "", **files}.items():
        write_text_atomically(left / path, text)
    return left


def give_to_stranger(path, monkeypatch):
    """Let a path belong to another user: truly for root, and else by what the system says."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
        return
    original = Path.lstat

    def lstat(self):
        facts = original(self)
        theirs = os.stat_result((*facts[:4], STRANGER, *facts[5:]))
        return theirs if self == path else facts

    monkeypatch.setattr(Path, "lstat", lstat)


@pytest.mark.parametrize("problem", ["owner", "mode", "group", "link", "name"])
def test_recover_folders_leaves_what_others_made(tmp_path, monkeypatch, problem):
    """In a folder that others may write, another user may leave what looks like an interrupted
    output.
    """
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    forged = {"whole/victim.txt": "evil"} if problem == "name" else {"whole/model/a": "evil"}
    left = write_leftover(tmp_path, "model", **forged)
    if problem == "owner":
        give_to_stranger(left, monkeypatch)
    elif problem == "link":
        left = left.rename(tmp_path / "elsewhere")
        (tmp_path / ".model.tmp-0123456789abcdef").symlink_to(left)
    elif problem != "name":
        left.chmod(0o777 if problem == "mode" else 0o770)
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "config.json").write_text("new")
    assert read_model(tmp_path / "model") == {"config.json": "new"} and left.exists()
    assert victim.read_text() == "mine"


def test_atomic_folder_lets_no_other_user_write_aside(tmp_path):
    """Another user who can write the temporary folder could add files, which would be moved."""
    with atomic_folder(tmp_path / "model") as temporary:
        assert stat.S_IMODE(temporary.parents[1].stat().st_mode) == 0o700


def test_lock_folder_leaves_leftovers_of_other_users(tmp_path, monkeypatch):
    victim = tmp_path / "run" / "victim.txt"
    write_text_atomically(victim, "mine")
    left = write_leftover(tmp_path / "run", "checkpoint-1", **{"whole/victim.txt": "evil"})
    file = tmp_path / "run" / ".metrics.tmp-0123456789abcdef"
    file.write_text("theirs")
    give_to_stranger(file, monkeypatch)
    with lock_folder(tmp_path / "run"):
        assert victim.read_text() == "mine" and left.exists() and file.exists()


def test_lock_folder_completes_a_missing_checkpoint(tmp_path):
    (tmp_path / "run").mkdir()
    write_leftover(tmp_path / "run", "checkpoint-1", **{"whole/checkpoint-1/a": "new"})
    with lock_folder(tmp_path / "run"):
        assert read_model(tmp_path / "run" / "checkpoint-1") == {"a": "new"}
        assert not [*(tmp_path / "run").glob(".*.tmp-*")]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_save_model_folder_follows_umask(tiny_model, tiny_tokenizer, tmp_path, umask):
    previous = os.umask(umask)
    try:
        folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~umask
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666 & ~umask}


def flip_bit(path, percent):
    content = bytearray(path.read_bytes())
    content[percent * (len(content) - 1) // 100] ^= 1
    path.write_bytes(content)


# Ways to damage a folder of the files "a" and "inner/b".
DAMAGE = {"no hashes": (HASHES_FILE, partial(Path.write_text, data="[]"))}
for name in ("a", "inner/b", HASHES_FILE):
    for percent in (0, 50, 100):
        DAMAGE[f"bit of {name} at {percent} %"] = (name, partial(flip_bit, percent=percent))
    DAMAGE[f"{name} is truncated"] = (name, partial(os.truncate, length=1))
    DAMAGE[f"{name} is empty"] = (name, partial(Path.write_text, data=""))
    DAMAGE[f"{name} is missing"] = (name, Path.unlink)


def write_entry(folder):
    (folder / "inner").mkdir()
    (folder / "a").write_text("first text")
    (folder / "inner" / "b").write_text("second text")


def test_find_damage_follows_what_update_json_and_people_change(tmp_path):
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_text('{"a": 1}')
    write_hashes(tmp_path)
    update_json(tmp_path / "config.json", {"a": 2})
    (tmp_path / "generation_config.json").write_text('{"a": 2}')
    assert find_damage(tmp_path) is None
    (tmp_path / "generation_config.json").write_text('{"a": ')
    assert find_damage(tmp_path) == "generation_config.json is damaged"


@pytest.mark.parametrize("has_records", [False, True])
@pytest.mark.parametrize("name, damage", DAMAGE.values(), ids=DAMAGE)
def test_cached_folder_rebuilds_damaged_entry(tmp_path, name, damage, has_records, caplog):
    entry = partial(cached_folder, tmp_path, "entry", write_entry, has_records=has_records)
    path = entry() / name
    time.sleep(0.01)  # as long as the clock of a file system may stand still
    damage(path)
    folder = entry()
    text = (folder / "a").read_text() + (folder / "inner" / "b").read_text()
    assert text == "first textsecond text"
    assert find_damage(folder) is None
    assert "is damaged" in caplog.text


@pytest.fixture
def hashed(monkeypatch):
    """Return the names of the files that are hashed."""
    names, file_digest = [], hashlib.file_digest

    def record_digest(file, name):
        names.append(Path(file.name).name)
        return file_digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", record_digest)
    return names


def set_time(path):
    os.utime(path, (1, 1))


def flip_bit_unseen(path):
    facts = path.stat()
    flip_bit(path, percent=50)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


UNSEEN = {"nothing": (lambda path: None, []), "a bit with the former time": (flip_bit_unseen, [])}
UNSEEN["the time"] = (set_time, ["a"])


@pytest.mark.parametrize(("change", "read"), UNSEEN.values(), ids=UNSEEN)
def test_cached_work_reads_a_file_of_another_time(tmp_path, hashed, change, read):
    folder = cached_work(tmp_path, "entry", (), write_entry)
    assert sorted(hashed) == ["a", "b"]
    change(folder / "a")
    for expected in (read, []):
        hashed.clear()
        assert cached_work(tmp_path, "entry", (), write_entry) == folder and hashed == expected


def test_cached_work_records_the_hashes_of_an_older_release(tmp_path, hashed, monkeypatch):
    """A cache that cannot be written has no records, and its files are read."""
    folder = cached_work(tmp_path, "entry", (), write_entry)
    for _ in range(2):
        hashed.clear()
        shutil.rmtree(tmp_path / "hashes", ignore_errors=True)
        (tmp_path / "hashes").touch()
        assert cached_work(tmp_path, "entry", (), write_entry) == folder
        assert sorted(hashed) == ["a", "b"]
    (tmp_path / "hashes").unlink()
    for expected in (["a", "b"], []):
        hashed.clear()
        assert cached_work(tmp_path, "entry", (), write_entry) == folder
        assert sorted(hashed) == expected


def test_cached_work_is_hashed_by_the_one_that_writes(tmp_path, hashed):
    """Those that wait leave together, without a look at the files."""

    def write(folder):
        time.sleep(0.2)
        write_entry(folder)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: cached_work(tmp_path, "entry", (), write), range(4)))
    assert sorted(hashed) == ["a", "b"]


def test_hash_json_ignores_the_order_of_keys():
    key = hash_json({"a": 1, "b": [None]})
    assert hash_json({"b": [None], "a": 1}) == key
    assert hash_json({"a": 1, "b": []}) != key


def test_cached_work_is_made_once_for_a_content(tmp_path):
    made = []
    for content in ((1, "a"), (1, "a"), (2, "a")):
        made.append(cached_work(tmp_path, "entry", content, write_entry))
    first, again, other = made
    assert first == again == tmp_path / f"entry-{hash_json(1, 'a')}"
    assert other != first and (other / "a").is_file()


def test_cached_folder_replaces_file_of_its_name(tmp_path):
    (tmp_path / "entry").write_text("a file")
    assert (cached_folder(tmp_path, "entry", write_entry) / "a").read_text() == "first text"


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda path: tiny_tokenizer().backend_tokenizer.save(path), "the tokenizer to "),
        (lambda path: Path(path).write_text("text"), ""),
        (lambda path: pyarrow.OSFile(path, "w").write(b"text"), ""),
    ],
    ids=["tokenizers", "text", "arrow"],
)
def test_atomic_folder_names_the_folder_on_a_full_disk(write, what, tmp_path):
    words = f"Cannot write {what}{tmp_path / 'model'}: No space left on device"
    with pytest.raises(OSError, match=words), atomic_folder(tmp_path / "model"):
        write("/dev/full")
    assert not [*tmp_path.iterdir()]


def test_check_output_dir_is_empty_refuses_files_and_nonempty_folders(tmp_path):
    check_output_dir_is_empty(tmp_path)
    check_output_dir_is_empty(tmp_path / "new")
    (tmp_path / "file").touch()
    for path, problem in ((tmp_path, "is not empty"), (tmp_path / "file", "is a file")):
        message = f"must be a new or an empty folder, but {path} {problem}"
        with pytest.raises(OSError, match=message):
            check_output_dir_is_empty(path)


def test_lock_folder_removes_leftovers_of_killed_process(tmp_path):
    """Files to which a link leads stay: another program has made it."""
    run = tmp_path / "run"
    write_text_atomically(tmp_path / "of others" / "notes", "mine")
    write_text_atomically(run / ".notes.tmp-12ab12ab12ab12ab", "half")
    write_text_atomically(run / ".run.tmp-12ab12ab12ab12ab" / ".lock", "")
    (run / ".run.tmp-12ab12ab12ab12ab" / "whole").symlink_to(tmp_path / "of others")
    (run / "ema").mkdir()
    write_leftover(run / "ema", "ema")
    with lock_folder(run):
        names = {path.name for path in run.iterdir()}
        assert names == {".lock", ".run.tmp-12ab12ab12ab12ab", "ema"}
    assert (tmp_path / "of others" / "notes").exists()
    assert not [*(run / "ema").iterdir()]


def test_check_output_dir_is_empty_removes_leftovers_of_killed_process(tmp_path):
    (tmp_path / "[model]").mkdir()
    write_leftover(tmp_path / "[model]", "[model]")
    check_output_dir_is_empty(tmp_path / "[model]")


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_locks_hold_on_file_system_without_flock(tmp_path, monkeypatch, reason):
    """Files of locks that were copied from another file system, and of processes that were killed,
    are free.
    """

    def flock(*_):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", flock)
    for path in (tmp_path / "run" / ".lock", tmp_path / "entry.lock"):
        write_text_atomically(path, f"{os.getpid()}\n{platform.node()}\n")
        os.utime(write_text_atomically(f"{path}.pid", ""), (0, 0))
    with lock_folder(tmp_path / "run"):
        message = f"Only one run may use {tmp_path}/run at a time, but process {os.getpid()} on "
        with pytest.raises(ValueError, match=message), lock_folder(tmp_path / "run"):
            pass
    write_text_atomically(tmp_path / "run" / ".lock.pid", f"{2**22 + 1}\n{platform.node()}\n")
    with lock_folder(tmp_path / "run"):
        pass
    assert cached_folder(tmp_path, "entry", write_entry).is_dir() and not [*tmp_path.rglob("*.pid")]


def test_cached_folder_says_for_whom_it_waits(tmp_path, caplog):
    def write(folder):
        threads.submit(cached_folder, tmp_path, "entry", write_entry)
        while not caplog.messages:
            time.sleep(0.1)
        write_entry(folder)

    with ThreadPoolExecutor(1) as threads:
        cached_folder(tmp_path, "entry", write)
    holder = f"process {os.getpid()} on {platform.node()}"
    assert caplog.messages == [f"Waiting for {tmp_path / 'entry.lock'}, which {holder} holds."]


def test_atomic_folder_needs_no_modes(tmp_path, monkeypatch):
    def chmod(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    for name in ("chmod", "fchmod"):
        monkeypatch.setattr(os, name, chmod)
    save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path / "model")
    assert has_weights(tmp_path / "model")


@pytest.mark.parametrize(
    "load", [load_model_weights, partial(load_pretrained, AutoModelForSeq2SeqLM)]
)
def test_loading_names_the_file_that_cannot_be_mapped(tmp_path, monkeypatch, load):
    def fail(*_, **__):
        raise OSError("No such device (os error 19)")

    save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path / "model")
    monkeypatch.setattr("safetensors.torch.safe_open", fail)
    monkeypatch.setattr("transformers.modeling_utils.safe_open", fail)
    with pytest.raises(
        OSError, match=f"{tmp_path}/model.* must be on a disk that can map files into memory"
    ):
        load(tmp_path / "model")
