"""A page of `examples` that translates: built by its script, and looked at in Chromium."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import requested_addresses, set_width
from tests.node import require, run_with_network


def check_page(example, model, folder, browser):
    """Build the page of an example with a model, and let it translate after its server has
    stopped.
    """
    require("npm")
    run_with_network([str(example / "build.sh"), str(model), str(folder)])
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=folder)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        requested_addresses(browser)
        browser.get(address)
        _wait_for_status(browser, "Ready")
        server.shutdown()
    browser.find_element(By.ID, "translate").click()
    _wait_for_status(browser, "Done")
    assert browser.find_element(By.ID, "translation").get_property("value")
    addresses = requested_addresses(browser)
    assert all(name.removeprefix("blob:").startswith(address) for name in addresses), addresses
    assert not [
        entry for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")
    ]
    for width in (1280, 360):
        set_width(browser, width)
        assert browser.execute_script("return document.documentElement.scrollWidth") == width


def _wait_for_status(browser, status):
    WebDriverWait(browser, 120).until(
        lambda page: page.find_element(By.ID, "status").text.startswith((status, "Failed"))
    )
    assert browser.find_element(By.ID, "status").text == status
