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
    model, folder = tmp_path_factory.mktemp("models") / "converted", tmp_path_factory.mktemp("site")
    WRITERS["transformers.js"](ROOT / "models/en-de", model, ["Tom sings."])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSLATOR", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    run_with_network(
        [str(ROOT / "examples/browser/build.sh"), str(model), str(folder / "translator")]
    )
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages = sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("index.html"))
        yield f"http://127.0.0.1:{server.server_port}", pages
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_site_is_accessible(site, browser, axe, scheme, width):
    address, pages = site
    set_width(browser, width)
    set_color_scheme(browser, scheme)
    found = {}
    for page in pages:
        browser.get(f"{address}/{page}/")
        problems = find_problems(browser, axe, width)
        problems += [entry["message"] for entry in browser.get_log("browser")]
        found |= {page: problems} if problems else {}
    assert len(pages) > 30 and not found
    assert all(
        each.removeprefix("blob:").startswith(address) for each in requested_addresses(browser)
    )


def test_site_search_finds_a_recipe_key(site, browser):
    address, _ = site
    browser.get(f"{address}/")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("warmup_steps")
    WebDriverWait(browser, 20).until(
        lambda driver: (
            "Recipe keys" in driver.find_element(By.CSS_SELECTOR, ".md-search-result__list").text
        )
    )


def test_site_follows_the_color_scheme_of_the_system(site, browser):
    address, _ = site
    found = []
    for scheme in ("light", "dark", "light"):
        set_color_scheme(browser, scheme)
        browser.get(f"{address}/")
        found.append(browser.execute_script("return document.body.dataset.mdColorScheme"))
    assert found == ["default", "slate", "default"]


def test_home_page_translates_in_the_browser(site, browser):
    browser.get(f"{site[0]}/")
    browser.switch_to.frame(browser.find_element(By.CSS_SELECTOR, "iframe.translator"))
    for status in ("Ready", "Done"):
        WebDriverWait(browser, 120).until(
            expected_conditions.text_to_be_present_in_element((By.ID, "status"), status)
        )
        browser.find_element(By.ID, "translate").click()
    assert (
        browser.find_element(By.ID, "translation").get_property("value")
        == "Tom gab mir einen roten Apfel."
    )
    browser.switch_to.default_content()
