"""The page: what it shows, and that a real browser can use it."""

import asyncio
import shutil
import socket
import threading
import time
from pathlib import Path

import gradio as gr
import pytest
import uvicorn
from fastapi.testclient import TestClient

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.evaluation.plots import plot_attention
from vanilla_transformer.serving.batcher import Batcher
from vanilla_transformer.serving.page import add_page, answering
from vanilla_transformer.serving.service import create_service, translate_with


def shout(texts, hypotheses):
    return [[f"{text.upper()} {rank}" for rank in range(hypotheses)] for text in texts]


def answered(text, draw=None):
    """What the page shows for `text`."""

    async def run():
        batcher = Batcher(shout)
        worker = asyncio.create_task(batcher.run())
        try:
            return await answering(batcher, draw)(text)
        finally:
            worker.cancel()
            batcher.close()

    return asyncio.run(run())


def test_the_answer_is_the_translation_and_the_best_of_the_first_line():
    def draw(text, picture):
        picture.write_text(text)
        return picture

    whole, hypotheses, picture = answered("\none\ntwo", draw)
    assert whole == "\nONE\nTWO 0"
    assert hypotheses == [[1, "ONE 0"], [2, "ONE 1"], [3, "ONE 2"], [4, "ONE 3"]]
    assert Path(picture).read_text() == "one"
    assert answered("one")[2] is None


@pytest.mark.parametrize("text", ["", " \n "])
def test_nothing_is_answered_with_a_message(text):
    with pytest.raises(gr.Error, match="no text"):
        answered(text)


def test_the_page_stands_beside_the_service():
    with TestClient(add_page(create_service(shout), "A model")) as client:
        assert "A model" in client.get("/").text
        assert client.post("/translate", json={"text": "one"}).json() == {"translations": [["ONE 0"]]}


@pytest.fixture
def address(tiny_model, tiny_tokenizer):
    """A server of a real model, with the page."""
    translate = TranslationPipeline(tiny_model, tiny_tokenizer)

    def draw(text, picture):
        return plot_attention(tiny_model, tiny_tokenizer, text, picture)

    service = add_page(create_service(translate_with(translate)), "A model", draw)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(service, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}", translate
    server.should_exit = True
    thread.join()


@pytest.mark.slow
def test_a_browser_translates_on_the_page(address, tmp_path):
    """Chromium and its driver are the system's: `apt install chromium chromium-driver`."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("Chromium is not installed")
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    url, translate = address
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    flags = ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync")
    flags += ("disable-background-networking", "disable-component-update", "window-size=1200,1300")
    for flag in flags:
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(url)
        waiting = WebDriverWait(driver, 60)
        waiting.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#source textarea"))
        driver.find_element(By.CSS_SELECTOR, "#source textarea").send_keys("A man is sleeping.")
        driver.find_element(By.ID, "translate").click()
        target = driver.find_element(By.CSS_SELECTOR, "#translation textarea")
        waiting.until(lambda page: target.get_attribute("value"))
        assert target.get_attribute("value") == translate("A man is sleeping.")[0]["translation_text"]
        waiting.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#attention img"))
        second = translate("A man is sleeping.", num_return_sequences=4)[0][1]["translation_text"]
        assert second in driver.find_element(By.ID, "hypotheses").text
        driver.save_screenshot(str(tmp_path / "page.png"))
    finally:
        driver.quit()
