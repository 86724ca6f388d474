"""Download of corpora, from a mirror on this disk."""

import gzip

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.data import download
from vanilla_transformer.data.download import CORPORA, PublicCorpus, TextFile, download_corpus

TEXTS = {"train.en": b"A man.\nTwo dogs.\n", "train.de": b"Ein Mann.\nZwei Hunde.\n"}


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Write a folder of .gz files, and register a corpus `tiny` that consists of them."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))
    files = {}
    for name, text in TEXTS.items():
        files[name] = TextFile(2, download.hashlib.sha256(text).hexdigest())
    monkeypatch.setitem(CORPORA, "tiny", PublicCorpus(folder.as_uri(), "free", files))
    return folder


def test_download_corpus_writes_the_texts(mirror, tmp_path, caplog):
    folder = download_corpus("tiny", tmp_path / "data" / "tiny")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == TEXTS
    assert not caplog.messages


def test_download_corpus_uses_the_mirror_of_base_url(mirror, tmp_path):
    other = mirror.rename(tmp_path / "other")
    with pytest.raises(OSError, match="Cannot download"):
        download_corpus("tiny", tmp_path / "tiny")
    download_corpus("tiny", tmp_path / "tiny", f"{other.as_uri()}/")
    assert (tmp_path / "tiny" / "train.de").read_bytes() == TEXTS["train.de"]


def test_download_corpus_warns_of_a_text_that_differs(mirror, tmp_path, caplog):
    (mirror / "train.de.gz").write_bytes(gzip.compress(b"Ein Mann.\nZwei Katzen.\n", mtime=0))
    download_corpus("tiny", tmp_path / "tiny")
    message = "train.de differs from the copy that the published results were measured on."
    assert caplog.messages == [message]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"Ein Mann.\n", mtime=0), "train.de must have 2 lines, got 1"),
        (gzip.compress(TEXTS["train.de"], mtime=0)[:-9], "train.de.gz is not a complete .gz file"),
        (b"<html>", "train.de.gz is not a complete .gz file"),
    ],
)
def test_download_corpus_refuses_a_damaged_file(content, message, mirror, tmp_path):
    (mirror / "train.de.gz").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        download_corpus("tiny", tmp_path / "tiny")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mirror"]


def test_download_corpus_covers_the_files_of_the_recipes():
    assert {"train.en", "val.de", "test_2016_flickr.fr"} <= CORPORA["multi30k"].files.keys()
    assert CORPORA["multi30k"].url.startswith("https://")


def test_download_data_command(mirror, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["download-data", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny is in data/tiny. License: free.\n"
    assert (tmp_path / "data" / "tiny" / "train.en").read_bytes() == TEXTS["train.en"]
    assert main(["download-data"]) == main(["download-data", "none"]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "error: This command takes CORPUS, got none. See --help."
    assert shown[1] == "error: There is no corpus 'none'. Known corpora: multi30k, tiny."
