"""The web page of the service, in a real browser: Chromium and its driver (`apt install chromium chromium-driver`)."""

import os
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import set_width
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.evaluation.plots import plot_attention
from vanilla_transformer.serving.limits import Limits
from vanilla_transformer.serving.page import add_page
from vanilla_transformer.serving.server import create_server
from vanilla_transformer.serving.service import count_tokens_with, create_service, translate_with

_TYPE = """
Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(arguments[0], arguments[1]);
arguments[0].dispatchEvent(new Event("input", {bubbles: true}));
"""
_UPLOAD = """
const [path, done] = arguments, form = new FormData();
form.append("files", new Blob(["content"]), "file.txt");
fetch(path, {method: "POST", body: form}).then(answer => done(answer.status));
"""
_DROP = """
const files = new DataTransfer();
files.items.add(new File(["content"], "file.txt", {type: "text/plain"}));
for (const element of document.querySelectorAll("textarea, input, button, body"))
    element.dispatchEvent(new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: files}));
document.activeElement.dispatchEvent(new ClipboardEvent("paste", {bubbles: true, clipboardData: files}));
"""


@contextmanager
def serving(translate, count_tokens=None, draw=None, limits=None, **options):
    """Serve a page; yield its address."""
    limits = limits or Limits()
    service = add_page(create_service(translate, limits, count_tokens, **options), "A model", draw)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = create_server(service, limits)
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def shout(texts, hypotheses):
    return [[text.upper()] * hypotheses for text in texts]


def wait_for(browser, selector):
    """Return the first visible element that the CSS selector matches, once there is one."""

    def find(page):
        return next((found for found in page.find_elements(By.CSS_SELECTOR, selector) if found.is_displayed()), None)

    return WebDriverWait(browser, 60).until(find)


def translate_in(browser, text):
    """Enter a text and click the button; return the field of the translation."""
    browser.execute_script(_TYPE, wait_for(browser, "#source textarea"), text)
    wait_for(browser, "#translate").click()
    return browser.find_element(By.CSS_SELECTOR, "#translation textarea")


def wait_for_value(browser, field):
    return WebDriverWait(browser, 60).until(lambda page: field.get_attribute("value"))


def read_error(browser):
    """Return the one error message that the page shows."""
    WebDriverWait(browser, 60).until(lambda page: wait_for(page, ".toast-body").text.strip())
    (message,) = browser.find_elements(By.CSS_SELECTOR, ".toast-body")
    return message.text.splitlines()[-1]


@pytest.fixture
def temporary_folder(tmp_path, monkeypatch):
    """Keep all temporary files of the test, and Gradio's, in one folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def list_files(folder):
    return [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]


@pytest.mark.parametrize("width", [1280, 400])
def test_page_translates_in_a_browser(browser, width, tiny_model, tiny_tokenizer, temporary_folder):
    translate = TranslationPipeline(tiny_model, tiny_tokenizer)

    def draw(text, picture):
        assert list_files(temporary_folder) == []
        return plot_attention(tiny_model, tiny_tokenizer, text, picture)

    set_width(browser, width)
    with serving(translate_with(translate), count_tokens_with(tiny_tokenizer), draw) as url:
        browser.get(url)
        target = translate_in(browser, "A man is sleeping.")
        assert wait_for_value(browser, target) == translate("A man is sleeping.")[0]["translation_text"]
        wait_for(browser, "#attention img")
        second = translate("A man is sleeping.", num_return_sequences=4)[0][1]["translation_text"]
        assert second in browser.find_element(By.ID, "hypotheses").text
        assert list_files(temporary_folder) == [], "the pictures are removed"
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "nothing is cut off"
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert loaded and not [address for address in loaded if not address.startswith(url)]


REFUSED = {
    "too many characters": ("a" * 501, "The characters of a text may be at most 500, got 501."),
    "too many tokens": ("\N{GRINNING FACE}" * 30, "The tokens of a text may be at most 100, got 120."),
    "too many lines": ("a\n" * 101, "The tokens of a text may be at most 100, got 202."),
    "a body that is too large": ("a" * 20_000, "The body may have at most 10000 bytes."),
    "no text": (" \n ", "There is no text to translate."),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_page_explains_a_refusal_in_a_browser(text, message, browser, capfd):
    with serving(shout, limits=Limits(max_characters=500, max_tokens=100, max_body_bytes=10_000)) as url:
        browser.get(url)
        translate_in(browser, text)
        assert read_error(browser) == message
        assert wait_for_value(browser, translate_in(browser, "one")) == "ONE", "the page still works"
    assert "Traceback" not in capfd.readouterr().err


def test_page_never_cuts_a_typed_text(browser):
    with serving(shout, limits=Limits(max_characters=5)) as url:
        browser.get(url)
        wait_for(browser, "#source textarea").send_keys("a man")
        browser.find_element(By.CSS_SELECTOR, "#source textarea").send_keys(" sleeps")
        wait_for(browser, "#translate").click()
        assert read_error(browser) == "The characters of a text may be at most 5, got 12."


def test_page_has_a_deadline_in_a_browser(browser, capfd):
    def translate(texts, hypotheses):
        time.sleep(0.8)
        return shout(texts, hypotheses)

    with serving(translate, limits=Limits(request_seconds=1)) as url:
        browser.get(url)
        translate_in(browser, "one")
        assert read_error(browser) == "The request took longer than 1 seconds."
    assert "Traceback" not in capfd.readouterr().err


def test_page_takes_no_uploads_in_a_browser(browser, temporary_folder):
    with serving(shout) as url:
        browser.get(url)
        wait_for(browser, "#source textarea").click()
        browser.execute_script(_DROP)
        for path in ("/gradio_api/upload", "/gradio_api/upload?upload_id=1", "/gradio_api/process_recording"):
            assert browser.execute_async_script(_UPLOAD, path) == 403
        assert wait_for_value(browser, translate_in(browser, "one")) == "ONE"
    assert list_files(temporary_folder) == []


def test_page_asks_for_a_key_in_a_browser(browser):
    with serving(shout, api_keys=["the-key"]) as url:
        for path in ("/docs", "/openapi.json", "/gradio_api/info"):
            browser.get(url + path)
            assert "hypotheses" not in browser.page_source
        browser.get(url)
        wait_for(browser, "input[type=password]")
        assert "API key" in browser.find_element(By.TAG_NAME, "body").text
        assert not browser.find_elements(By.ID, "source") and "hypotheses" not in browser.page_source
        log_in(browser, "wrong")
        WebDriverWait(browser, 60).until(lambda page: "Incorrect" in page.find_element(By.TAG_NAME, "body").text)
        assert not browser.find_elements(By.ID, "source")
        log_in(browser, "the-key")
        assert wait_for_value(browser, translate_in(browser, "one")) == "ONE"


def log_in(browser, key):
    password = wait_for(browser, "input[type=password]")
    name = browser.find_element(By.CSS_SELECTOR, "input:not([type=password]), textarea")
    for field, text in ((name, "me"), (password, key)):
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)
    password.send_keys(Keys.ENTER)
