"""The web page of the service."""

import asyncio
import base64
import tempfile
import threading
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


def page_outputs(text, draw=None, translate=shout):
    """Return the outputs of the page for `text`."""

    async def run():
        batcher = Batcher(translate, Limits(max_characters=500))
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
    assert page_outputs("one " * 100, draw)[2] == "", "the plot of a long text would be enormous"


def test_page_keeps_no_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    page_outputs("one", draw)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no text"), (" \n ", "no text"), ("a" * 501, "at most 500, got 501"), ("\ud800", "lone surrogate"),
     ("break", "failed to translate")],
)  # fmt: skip
def test_page_explains_errors(text, said):
    def translate(texts, hypotheses):
        if "break" in texts:
            raise RuntimeError("no")
        return shout(texts, hypotheses)

    with pytest.raises(gr.Error, match=said):
        page_outputs(text, translate=translate)


@pytest.fixture(scope="module")
def client():
    with TestClient(add_page(create_service(shout, Limits(max_body_bytes=2000)), "A model")) as client:
        yield client


def test_add_page_keeps_the_service(client):
    assert "A model" in client.get("/").text
    assert client.post("/translate", json={"text": "one"}).json() == {"translations": [["ONE 0"]]}


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/upload/", "/gradio_api//upload", "/upload"])
def test_add_page_takes_no_uploads(path, client):
    assert client.post(path, files={"files": b"content"}).status_code == 403


def test_add_page_limits_the_size_of_requests(client):
    answer = client.post("/gradio_api/queue/join", json={"data": ["a" * 3000], "fn_index": 0, "session_hash": "a"})
    assert answer.status_code == 413


def test_add_page_limits_the_length_of_the_source():
    limits = Limits(max_characters=7)
    with TestClient(add_page(create_service(shout, limits), "A model", limits=limits)) as client:
        components = client.get("/config").json()["components"]
    assert [part["props"]["max_length"] for part in components if part["props"].get("elem_id") == "source"] == [7]


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
    """As the button does: start an event, then read its result."""
    event = client.post("/gradio_api/call/answer", json={"data": ["one"]}).json()["event_id"]
    result = client.get(f"/gradio_api/call/answer/{event}").text
    assert "event: complete" in result and '"ONE 0"' in result
