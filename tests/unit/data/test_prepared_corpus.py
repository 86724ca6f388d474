"""Read and write the folder of a prepared corpus, and refuse a damaged one."""

import json

import pytest

from tests.prepared_corpora import write_prepared_lengths
from vanilla_transformer.data import prepared_corpus
from vanilla_transformer.data.prepared_corpus import (
    MANIFEST_FILE,
    open_shards,
    read_manifest,
    write_manifest,
)
from vanilla_transformer.errors import UserError

LENGTHS = [3, 5, 2, 8, 4, 4, 9]


@pytest.fixture
def folder(tmp_path):
    write_prepared_lengths(tmp_path / "corpus", LENGTHS, shards=3, corpora_of=[0, 0, 1])
    return tmp_path / "corpus"


def test_read_manifest_returns_the_values_written(folder):
    manifest = read_manifest(folder)
    assert [shard.pairs for shard in manifest.shards] == [2, 2, 3]
    assert (manifest.shards[0].corpus, manifest.shards[2].corpus) == (0, 1)
    assert manifest.corpora == ["a", "b"]
    assert manifest.pairs == len(LENGTHS)
    assert [shard.source_tokens for shard in manifest.shards] == [8, 10, 17]
    assert [shard.longest_target for shard in manifest.shards] == [5, 8, 9]
    write_manifest(folder, manifest)
    assert read_manifest(folder) == manifest


def test_read_manifest_reads_a_file_once(folder, monkeypatch):
    contents, plain = [], prepared_corpus.read_json

    def record(path):
        contents.append(plain(path))
        return contents[-1]

    monkeypatch.setattr(prepared_corpus, "read_json", record)
    first = read_manifest(folder)
    assert read_manifest(str(folder)) is first and len(contents) == 1
    write_manifest(folder, first.model_copy(update={"tokenizer": "another"}))
    assert read_manifest(folder).tokenizer == "another" and len(contents) == 2


def test_open_shards_keeps_the_order_given(folder):
    first, second, third = read_manifest(folder).shards
    shards = open_shards(folder, [third, first], verify=True)
    assert shards["source"][:] == ["4", "5", "6", "0", "1"]
    assert [len(tokens) for tokens in shards["input_ids"]] == [4, 4, 9, 3, 5]
    assert shards["input_ids"][:] == shards["labels"][:]


OF_MANIFEST = {
    "format": (2, "`format` of a manifest must be 1, the only format that this version reads"),
    "pairs": (8, "`pairs` must be the sum of the pairs of its shards"),
    "recipe": ([], "`recipe` of a manifest must be a mapping"),
    "corpora": ("a", "`corpora` of a manifest must be a list of words"),
    "shards": ([], "`shards` of a manifest must be a list of shards, with one or more"),
    "shard": ([], "There is no key of a manifest 'shard'"),
}
OF_SHARD = {
    "file": ("../0.arrow", "`file` of a shard must be a path such as shards/00000.arrow, got '../"),
    "corpus": (2, "`corpora` must have the name of the `corpus` of each shard"),
    "pairs": (-1, "`pairs` of a shard must be an integer from 1 to"),
    "source_tokens": (10**40, "`source_tokens` of a shard must be an integer from 1 to"),
    "longest_source": ("9", "`longest_source` of a shard must be an integer"),
    "bytes": (True, "`bytes` must be an integer from 1 to"),
    "sha256": ("00", "`sha256` of a shard must be 64 hexadecimal digits"),
}


def refuse_manifest(folder, content, reason):
    path = folder / MANIFEST_FILE
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_manifest(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", OF_MANIFEST)
def test_read_manifest_refuses_a_wrong_value(folder, name):
    value, reason = OF_MANIFEST[name]
    content = json.loads((folder / MANIFEST_FILE).read_text()) | {name: value}
    refuse_manifest(folder, json.dumps(content), reason)


@pytest.mark.parametrize("name", OF_SHARD)
def test_read_manifest_refuses_a_wrong_value_of_a_shard(folder, name):
    value, reason = OF_SHARD[name]
    content = json.loads((folder / MANIFEST_FILE).read_text())
    content["shards"][1][name] = value
    refuse_manifest(folder, json.dumps(content), reason)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[]", "It must be a mapping."), ("{", "must be JSON"), ("{}", "`pairs` must be given")],
)
def test_read_manifest_refuses_damaged_json(folder, content, reason):
    refuse_manifest(folder, content, reason)


def test_read_manifest_refuses_a_folder_without_one(folder, tmp_path):
    for path in (tmp_path, tmp_path / "none", folder / MANIFEST_FILE):
        with pytest.raises(UserError, match="must be a folder that `prepare` has completed"):
            read_manifest(path)


def flip_last_bit(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "verify"),
    [
        (None, False),
        (lambda content: content[:-8], False),
        (lambda content: bytes(len(content)), False),
        (flip_last_bit, True),
    ],
)
def test_open_shards_refuses_a_damaged_shard(folder, damage, verify):
    manifest = read_manifest(folder)
    path = folder / manifest.shards[1].file
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(content))
    with pytest.raises(UserError, match=f"but {path} is missing or damaged"):
        open_shards(folder, manifest.shards, verify)


def test_open_shards_refuses_a_shard_with_other_pairs(folder):
    first = read_manifest(folder).shards[0]
    with pytest.raises(UserError, match="is missing or damaged"):
        open_shards(folder, [first.model_copy(update={"pairs": 3})])
