"""Chromium without a window, and the requests and errors of its pages
(`apt install chromium chromium-driver`).
"""

import json
import shutil
from contextlib import contextmanager

import pytest

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
