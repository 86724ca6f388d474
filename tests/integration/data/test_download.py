"""Download of corpora over HTTP, from a server on the loopback address."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vanilla_transformer.data.download import download_corpus, fetch_file


@pytest.fixture
def server(tmp_path):
    """Serve a folder, and yield it and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        options = {"args": (0.01,), "daemon": True}
        thread = threading.Thread(target=server.serve_forever, **options)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download_corpus_names_a_file_that_it_cannot_download(server, tmp_path):
    reasons = {server[1]: "File not found", "http://127.0.0.1:9": ".*refused"}
    for address, reason in reasons.items():
        message = f"Cannot download {address}/train.en.gz: {reason}.*Nothing was written"
        with pytest.raises(OSError, match=message):
            download_corpus("multi30k", tmp_path / "multi30k", base_url=address)
        assert not (tmp_path / "multi30k").exists()


def test_fetch_file_notices_a_connection_that_breaks(server, tmp_path, monkeypatch):
    folder, address = server
    (folder / "text.gz").write_bytes(bytes(1000))

    def copy_little(self, file, out):
        out.write(file.read(11))

    broken = pytest.raises(OSError, match="11 of 1,000 bytes arrived")
    with monkeypatch.context() as patch, broken:
        patch.setattr(SimpleHTTPRequestHandler, "copyfile", copy_little)
        fetch_file(f"{address}/text.gz", tmp_path / "text.gz")
    fetch_file(f"{address}/text.gz", tmp_path / "text.gz")
    assert (tmp_path / "text.gz").read_bytes() == bytes(1000)
