"""The web page of the service."""

import asyncio
import base64
import tempfile
import threading
import time
from types import SimpleNamespace

import gradio as gr
import pytest
from fastapi.testclient import TestClient

from vanilla_transformer.serving import page
from vanilla_transformer.serving.batcher import Batcher
from vanilla_transformer.serving.limits import Limits
from vanilla_transformer.serving.page import add_page, make_answer
from vanilla_transformer.serving.service import create_service

VISITOR = SimpleNamespace(client=SimpleNamespace(host="127.0.0.1"))


def shout(texts, hypotheses):
    return [[f"{text.upper()} {rank}" for rank in range(hypotheses)] for text in texts]


def page_outputs(text, draw=None, translate=shout, **limits):
    """Return the outputs of the page for `text`."""

    async def run():
        batcher = Batcher(translate, Limits(max_characters=500, **limits))
        worker = asyncio.create_task(batcher.run())
        try:
            return await make_answer(batcher, draw)(text, VISITOR)
        finally:
            worker.cancel()
            batcher.close()

    return asyncio.run(run())


def draw(text, picture):
    picture.write_text(text)
    return picture


def test_page_shows_the_translation_and_the_best_of_the_first_line():
    whole, hypotheses, picture = page_outputs("\none\ntwo", draw)
    assert whole == "\nONE\nTWO 0"
    assert hypotheses == [[1, "ONE 0"], [2, "ONE 1"], [3, "ONE 2"], [4, "ONE 3"]]
    assert base64.b64encode(b"one").decode() in picture
    assert page_outputs("one")[2] == ""
    assert page_outputs("one " * 17, draw)[2] == "", "the plot of a long text would be enormous"
    assert page_outputs("\N{GRINNING FACE}" * 17, draw)[2] == "", "each of these has four tokens"


def test_page_plots_no_long_translation():
    assert page_outputs("one", draw, lambda texts, hypotheses: [["long " * 17] * hypotheses])[2] == ""


def test_page_keeps_no_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    page_outputs("one", draw)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no text"), (" \n ", "no text"), ("a" * 501, r"at most 500, got 501\."), ("\ud800", "lone surrogate"),
     ("break", "failed to translate")],
)  # fmt: skip
def test_page_explains_errors(text, said):
    def translate(texts, hypotheses):
        if "break" in texts:
            raise RuntimeError("no")
        return shout(texts, hypotheses)

    with pytest.raises(gr.Error, match=said) as raised:
        page_outputs(text, translate=translate)
    assert not raised.value.print_exception, "the log would have a traceback for each refused text"


def test_page_has_one_deadline_for_all_of_its_work():
    def translate(texts, hypotheses):
        time.sleep(0.7)
        return shout(texts, hypotheses)

    with pytest.raises(gr.Error, match="longer than 1 seconds"):
        page_outputs("one", translate=translate, request_seconds=1)


@pytest.fixture(scope="module")
def client():
    with TestClient(add_page(create_service(shout, Limits(max_body_bytes=2000)), "A model")) as client:
        yield client


def test_add_page_keeps_the_service(client):
    assert "A model" in client.get("/").text
    assert client.post("/translate", json={"text": "one"}).json() == {"translations": [["ONE 0"]]}


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/upload/", "/gradio_api//upload", "/upload"])
def test_add_page_takes_no_uploads(path, client):
    assert client.post(path, files={"files": b"content"}).status_code in (403, 404, 405)


CLOSED = ("heartbeat/a", "deep_link?session_hash=a", "info", "user", "run-history/buckets", "openapi.json")


@pytest.mark.parametrize(
    "path", [*(f"/gradio_api/{name}" for name in CLOSED), "/monitoring/summary", "/openapi.json", "/docs"]
)
def test_add_page_closes_the_routes_that_the_page_does_not_use(path, client):
    """Of which some store files, hold connections without an API key, or describe the service without `docs=True`."""
    assert client.get(path).status_code in (403, 404)


FILE = {"path": "http://127.0.0.1/large.bin", "meta": {"_type": "gradio.FileData"}}


@pytest.mark.parametrize("data", [[FILE], [None], ["one", "two"], {}, None])
def test_add_page_takes_one_text_and_no_file_to_download(data, client, monkeypatch):
    downloads = []
    monkeypatch.setattr(gr.processing_utils, "async_ssrf_protected_download", lambda *_, **__: downloads.append(1))
    answer = join(client, data)
    if answer.status_code == 200:
        client.get("/gradio_api/queue/data", params={"session_hash": "a"})
    assert not downloads and answer.status_code == 422
    assert "one text" in answer.text or "valid list" in answer.text


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"\xff"])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_add_page_refuses_a_body_that_is_no_object(body, content_type, client):
    answer = client.post("/gradio_api/queue/join", content=body, headers={"Content-Type": content_type})
    assert answer.status_code in (400, 422)


def join(client, data):
    """Start the event of the button."""
    return client.post("/gradio_api/queue/join", json={"data": data, "fn_index": 0, "session_hash": "a"})


def test_add_page_bounds_the_sessions_in_memory(client):
    page = next(route.app for route in client.app.routes if hasattr(getattr(route, "app", None), "state_holder"))
    assert page.state_holder.capacity <= 100


def test_add_page_limits_the_size_of_requests(client):
    assert join(client, ["a" * 3000]).status_code == 413


def test_add_page_names_the_limits_of_the_source():
    limits = Limits(max_characters=7, max_tokens=8)
    with TestClient(add_page(create_service(shout, limits), "A model")) as client:
        components = client.get("/config").json()["components"]
    (source,) = [part["props"] for part in components if part["props"].get("elem_id") == "source"]
    assert source["placeholder"] == "At most 7 characters and 8 tokens"
    assert source.get("max_length") is None, "the browser would cut a longer text without a word"


def test_add_page_limits_the_visitors_that_wait(monkeypatch):
    monkeypatch.setattr(page, "_MAX_VISITORS_WAITING", 2)
    proceed = threading.Event()
    service = create_service(lambda texts, hypotheses: proceed.wait(10) and shout(texts, hypotheses))
    with TestClient(add_page(service, "A model")) as client:
        visit = {"data": ["one"], "fn_index": 0, "session_hash": "a"}
        statuses = [client.post("/gradio_api/queue/join", json=visit).status_code for _ in range(20)]
        proceed.set()
    assert set(statuses) == {200, 503} and statuses[:2] == [200, 200]


def test_add_page_requires_a_key_if_the_service_does():
    with TestClient(add_page(create_service(shout, api_keys=["key"]), "A model")) as client:
        assert client.get("/config").status_code == 401
        assert client.post("/login", data={"username": "a", "password": "other"}).status_code == 400
        assert client.post("/login", data={"username": "a", "password": "key"}).status_code == 200
        assert client.get("/config").status_code == 200


def test_add_page_answers_the_browser(client):
    assert join(client, ["one"]).status_code == 200
    result = client.get("/gradio_api/queue/data", params={"session_hash": "a"}).text
    assert "process_completed" in result and '"ONE 0"' in result
