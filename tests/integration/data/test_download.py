"""Download of corpora over HTTP, from a server on the loopback address."""

import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vanilla_transformer.data.download import CORPORA, PublicCorpus, TextFile, download_corpus, fetch_file

TEXT = b"A man.\nTwo dogs.\n"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve an empty folder as the source of the corpus `tiny`; yield the folder and the server."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        files = {"train.en": TextFile(2, hashlib.sha256(TEXT).hexdigest())}
        monkeypatch.setitem(CORPORA, "tiny", PublicCorpus(f"http://127.0.0.1:{server.server_port}", "free", files))
        yield folder, server
        server.shutdown()
        thread.join()


def test_download_corpus_reads_from_a_server(server, tmp_path):
    folder, _ = server
    (folder / "train.en.gz").write_bytes(gzip.compress(TEXT))
    download_corpus("tiny", tmp_path / "tiny")
    assert (tmp_path / "tiny" / "train.en").read_bytes() == TEXT


def test_download_corpus_names_a_file_that_the_server_lacks(server, tmp_path):
    with pytest.raises(OSError, match=r"Cannot download http://127.0.0.1:\d+/train.en.gz: File not found"):
        download_corpus("tiny", tmp_path / "tiny")
    assert not (tmp_path / "tiny").exists()


def test_download_corpus_without_a_network_says_so(tmp_path):
    with pytest.raises(
        OSError, match="Cannot download http://127.0.0.1:9/train.en.gz: .*refused.*Nothing was written"
    ):
        download_corpus("multi30k", tmp_path / "multi30k", base_url="http://127.0.0.1:9")
    assert not (tmp_path / "multi30k").exists()


def test_fetch_file_notices_a_connection_that_breaks(server, tmp_path, monkeypatch):
    folder, running = server
    (folder / "train.en.gz").write_bytes(bytes(1000))
    copyfile = SimpleHTTPRequestHandler.copyfile
    monkeypatch.setattr(SimpleHTTPRequestHandler, "copyfile", lambda self, file, out: out.write(file.read(11)))
    with pytest.raises(OSError, match="11 of 1,000 bytes arrived"):
        fetch_file(f"http://127.0.0.1:{running.server_port}/train.en.gz", tmp_path / "text.gz")
    monkeypatch.setattr(SimpleHTTPRequestHandler, "copyfile", copyfile)
    fetch_file(f"http://127.0.0.1:{running.server_port}/train.en.gz", tmp_path / "text.gz")
    assert (tmp_path / "text.gz").read_bytes() == bytes(1000)
