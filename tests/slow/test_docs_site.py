"""The site in a browser: no accessibility violation, no console error, nothing wider than a phone.
It translates.

Needs Chromium and its driver, and `npm` and its registry for the home page's translator.
"""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import find_problems, requested_addresses, set_color_scheme, set_width
from tests.docs_pages import ROOT
from tests.node import require, run_with_network
from vanilla_transformer.extensions.conversion import WRITERS


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    require("npm")
    model = tmp_path_factory.mktemp("models") / "converted"
    folder = tmp_path_factory.mktemp("site")
    WRITERS["transformers.js"](ROOT / "models/en-de", model, ["Tom sings."])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSLATOR", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    script = ROOT / "examples/browser/build.sh"
    run_with_network([str(script), str(model), str(folder / "translator")])
    handler = partial(_QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        paths = folder.rglob("index.html")
        pages = sorted(str(path.parent.relative_to(folder)) for path in paths)
        yield f"http://127.0.0.1:{server.server_port}", pages
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_site_is_accessible(site, browser, axe, scheme, width):
    address, pages = site
    set_width(browser, width)
    set_color_scheme(browser, scheme)
    problems = []
    for page in pages:
        browser.get(f"{address}/{page}/")
        messages = [entry["message"] for entry in browser.get_log("browser")]
        for problem in find_problems(browser, axe, width) + messages:
            problems.append(f"{page}: {problem}")
    assert len(pages) > 30
    assert not problems
    for requested in requested_addresses(browser):
        assert requested.removeprefix("blob:").startswith(address)


def test_site_search_finds_a_recipe_key(site, browser):
    address, _ = site
    browser.get(f"{address}/")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("warmup_steps")
    results = (By.CSS_SELECTOR, ".md-search-result__list")
    are_there = expected_conditions.text_to_be_present_in_element(results, "Recipe keys")
    WebDriverWait(browser, 20).until(are_there)


def test_site_follows_the_color_scheme_of_the_system(site, browser):
    address, _ = site
    for scheme, shown in (("light", "default"), ("dark", "slate"), ("light", "default")):
        set_color_scheme(browser, scheme)
        browser.get(f"{address}/")
        assert browser.execute_script("return document.body.dataset.mdColorScheme") == shown


def test_home_page_translates_in_the_browser(site, browser):
    browser.get(f"{site[0]}/")
    browser.switch_to.frame(browser.find_element(By.CSS_SELECTOR, "iframe.translator"))
    for status in ("Ready", "Done"):
        element = (By.ID, "status")
        is_there = expected_conditions.text_to_be_present_in_element(element, status)
        WebDriverWait(browser, 120).until(is_there)
        browser.find_element(By.ID, "translate").click()
    translation = browser.find_element(By.ID, "translation").get_property("value")
    assert translation == "Tom gab mir einen roten Apfel."
    browser.switch_to.default_content()
