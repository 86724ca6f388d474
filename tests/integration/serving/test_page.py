"""The web page of the service."""

import asyncio
from pathlib import Path

import gradio as gr
import pytest
from fastapi.testclient import TestClient

from vanilla_transformer.serving.batcher import Batcher, Limits
from vanilla_transformer.serving.page import add_page, make_answer
from vanilla_transformer.serving.service import create_service


def shout(texts, hypotheses):
    return [[f"{text.upper()} {rank}" for rank in range(hypotheses)] for text in texts]


def page_outputs(text, draw=None):
    """Return the outputs of the page for `text`."""

    async def run():
        batcher = Batcher(shout, Limits())
        worker = asyncio.create_task(batcher.run())
        try:
            return await make_answer(batcher, draw)(text)
        finally:
            worker.cancel()
            batcher.close()

    return asyncio.run(run())


def test_page_shows_the_translation_and_the_best_of_the_first_line():
    def draw(text, picture):
        picture.write_text(text)
        return picture

    whole, hypotheses, picture = page_outputs("\none\ntwo", draw)
    assert whole == "\nONE\nTWO 0"
    assert hypotheses == [[1, "ONE 0"], [2, "ONE 1"], [3, "ONE 2"], [4, "ONE 3"]]
    assert Path(picture).read_text() == "one"
    assert page_outputs("one")[2] is None


@pytest.mark.parametrize("text", ["", " \n "])
def test_page_refuses_an_empty_text(text):
    with pytest.raises(gr.Error, match="no text"):
        page_outputs(text)


def test_add_page_keeps_the_service():
    with TestClient(add_page(create_service(shout), "A model")) as client:
        assert "A model" in client.get("/").text
        assert client.post("/translate", json={"text": "one"}).json() == {"translations": [["ONE 0"]]}
