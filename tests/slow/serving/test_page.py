"""The web page of the service, in a real browser."""

import shutil
import socket
import threading
import time

import pytest
import uvicorn

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.evaluation.plots import plot_attention
from vanilla_transformer.serving.page import add_page
from vanilla_transformer.serving.service import create_service, translate_with


@pytest.fixture
def address(tiny_model, tiny_tokenizer):
    """Serve a tiny model with the page; yield the address and the pipeline."""
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


def test_page_translates_in_a_browser(address, tmp_path):
    """Needs Chromium and its driver: `apt install chromium chromium-driver`."""
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
