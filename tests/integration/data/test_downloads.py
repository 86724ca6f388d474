"""Corpora by identifiers of OPUS, from a local archive in its format."""

import io
import json
import urllib.error
import zipfile

import datasets
import opustools
import pytest

from vanilla_transformer.data.readers import (
    CorpusSpec,
    SentencePair,
    content_key,
    open_corpus,
    read_pairs,
)

LANGUAGES = {"source_language": "en", "target_language": "de"}
PAIRS = [SentencePair("one", "eins"), SentencePair("two", "zwei")]


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def read_corpus(name, **languages):
        with open_corpus(CorpusSpec(dataset=name, **(LANGUAGES | languages))) as corpus:
            return list(read_pairs(corpus)), content_key(corpus)

    return read_corpus


@pytest.fixture
def opus(tmp_path, monkeypatch):
    """Answer the queries of opustools with an archive on disk, and list them."""
    queries = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("Numbers.de-en.de", "eins\nzwei\n")
        archive.writestr("Numbers.de-en.en", "one\ntwo\n")
    path = tmp_path / "de-en.txt.zip"
    path.write_bytes(buffer.getvalue())
    entry = {"url": path.as_uri(), "size": 1, "documents": 1, "alignment_pairs": 2}
    entry |= {"source_tokens": 2, "target_tokens": 2, "id": 1, "version": "v1"}
    entry |= {"source": "de", "target": "en"}

    def answer(self, url):
        queries.append(url)
        corpora = [entry] if "corpus=Numbers&" in url else []
        return json.loads(json.dumps({"corpora": corpora}))

    monkeypatch.setattr(opustools.OpusGet, "get_response", answer)
    return path, queries


def test_download_reads_a_corpus_of_opus_once(read, opus, capsys):
    path, queries = opus
    pairs, key = read("opus:Numbers")
    assert pairs == PAIRS and "version=latest&preprocessing=moses" in queries[0]
    path.unlink()
    assert read("opus:Numbers") == (pairs, key) and len(queries) == 1
    assert capsys.readouterr().out == ""


def test_download_names_a_mistake_with_opus(read, opus, tmp_path, monkeypatch):
    message = "OPUS must have the corpus None/v2 for en and de, but it has none"
    with pytest.raises(ValueError, match=message):
        read("opus:None/v2")
    message = "`target_language` must be given for opus:Numbers"
    with pytest.raises(ValueError, match=message):
        read("opus:Numbers", target_language=None)
    opus[0].write_bytes(opus[0].read_bytes()[:-40])
    message = "Cannot download opus:Numbers: the file is damaged. Nothing was written"
    with pytest.raises(OSError, match=message):
        read("opus:Numbers")
    opus[0].unlink()
    with pytest.raises(OSError, match="Cannot download opus:Numbers: .*No such file"):
        read("opus:Numbers")

    def fail(self, url):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(opustools.OpusGet, "get_response", fail)
    message = "Cannot look up opus:Numbers: no route to host. Check the network"
    with pytest.raises(OSError, match=message):
        read("opus:Numbers")
    folders = [path for path in (tmp_path / "cache").rglob("*opus-*") if path.is_dir()]
    assert not folders
