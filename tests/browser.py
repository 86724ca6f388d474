"""Chromium without a window: the requests and errors of its pages, and their violations of
accessibility, which axe-core of npm finds (`apt install chromium chromium-driver`).
"""

import functools
import json
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.node import require, run_with_network

_FLAGS = ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync")
_FLAGS += ("disable-background-networking", "disable-component-update", "window-size=1280,1300")


@contextmanager
def open_browser(profile):
    """Yield a driver of Selenium, or skip the test if Chromium is not installed."""
    from selenium import webdriver

    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("Chromium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*_FLAGS, f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        yield driver
    finally:
        driver.quit()


def set_width(browser, width):
    """Show pages in a window of so many pixels."""
    size = {"width": width, "height": 1300, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_color_scheme(browser, scheme):
    """Show pages to a visitor who prefers `light` or `dark`."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def requested_addresses(browser):
    """Return the addresses that pages have requested since the last call, without data in
    addresses.
    """
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [address for address in requests if not address.startswith(("data:", "chrome"))]


_RUN = """
const done = arguments[0];
axe.run().then(result => done(result.violations.map(each => each.id + ": " + each.nodes[0].html.slice(0, 200))));
"""


def install_axe(folder):
    """Return the script of axe-core, or skip the test if it cannot be installed."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    installed = subprocess.run(
        ["npm", "install", "--silent", "axe-core@4"], cwd=folder, capture_output=True, check=False
    )
    if installed.returncode:
        pytest.skip("npm cannot install axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def find_problems(browser, axe, width):
    """Return violations on the page that the browser shows, and whether it is wider than its
    window.
    """
    browser.execute_script(axe)
    problems = browser.execute_async_script(_RUN)
    if browser.execute_script("return document.documentElement.scrollWidth") > width:
        problems.append("wider than the window")
    return problems


def check_page(example, model, folder, browser):
    """Build the page of an example with a model, and let it translate after its server has
    stopped.
    """
    from selenium.webdriver.common.by import By

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
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 120).until(
        lambda page: page.find_element(By.ID, "status").text.startswith((status, "Failed"))
    )
    assert browser.find_element(By.ID, "status").text == status
