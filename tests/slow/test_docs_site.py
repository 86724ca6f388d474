"""The site in a browser: no accessibility violation, no console error, nothing wider than a phone."""

import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import requested_addresses, set_width
from tests.docs_pages import ROOT

_RUN_AXE = """
const done = arguments[0];
axe.run().then(result => done(result.violations.map(each => each.id + ": " + each.nodes[0].html.slice(0, 200))));
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    installed = subprocess.run(
        ["npm", "install", "--silent", "axe-core@4"], cwd=folder, capture_output=True, check=False
    )
    if installed.returncode:
        pytest.skip("npm cannot install axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages = sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("index.html"))
        yield f"http://127.0.0.1:{server.server_port}", pages
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_site_is_accessible(site, browser, axe, scheme, width):
    address, pages = site
    set_width(browser, width)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    found = {}
    for page in pages:
        browser.get(f"{address}/{page}/")
        browser.execute_script(axe)
        problems = browser.execute_async_script(_RUN_AXE)
        if browser.execute_script("return document.documentElement.scrollWidth") > width:
            problems.append("wider than the window")
        problems += [entry["message"] for entry in browser.get_log("browser")]
        found |= {page: problems} if problems else {}
    assert len(pages) > 30 and not found
    assert all(each.startswith(address) for each in requested_addresses(browser))


def test_site_search_finds_a_recipe_key(site, browser):
    address, _ = site
    browser.get(f"{address}/")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("warmup_steps")
    WebDriverWait(browser, 20).until(
        lambda driver: "Recipe keys" in driver.find_element(By.CSS_SELECTOR, ".md-search-result__list").text
    )
