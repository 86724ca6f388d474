"""Download of corpora over HTTP, from a server on the loopback address."""

import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vanilla_transformer.data import download
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


class Flaky(SimpleHTTPRequestHandler):
    """Answer the first request with "busy", and break off each further one after a few bytes."""

    CONTENT, MOST = gzip.compress(TEXT), 11
    sends_ranges = True
    asked: list[str | None] = []  # ranges

    def do_GET(self):
        self.asked.append(self.headers["Range"])
        if len(self.asked) == 1:
            return self.send_error(503)
        start = int(self.headers["Range"][6:-1]) if self.sends_ranges and self.headers["Range"] else 0
        rest = self.CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.MOST])


def serve(handler):
    """Yield the address of a server on the loopback address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/train.en.gz"
        server.shutdown()
        thread.join()


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def flaky(request, monkeypatch):
    """Yield the address of a flaky server, its class, and the pauses of the download, which take no time."""
    pauses = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    handler = type("Handler", (Flaky,), {"asked": [], "sends_ranges": request.param})
    for url in serve(handler):
        yield url, handler, pauses


def test_fetch_file_requests_the_rest_of_a_broken_download(flaky, tmp_path):
    url, handler, pauses = flaky
    if not handler.sends_ranges:
        with pytest.raises(OSError, match=f"^11 of {len(Flaky.CONTENT)} bytes arrived$"):
            fetch_file(url, tmp_path / "text.gz")
        assert pauses == [1, 1, 2, 4, 8]  # after "busy", some bytes, and four times no further ones
        return
    fetch_file(url, tmp_path / "text.gz")
    assert gzip.decompress((tmp_path / "text.gz").read_bytes()) == TEXT
    assert handler.asked == [None, None, *(f"bytes={start}-" for start in range(11, len(Flaky.CONTENT), 11))]
    assert set(pauses) == {1}
