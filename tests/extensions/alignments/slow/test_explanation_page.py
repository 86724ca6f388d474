"""The page of an explanation in a real browser: what it shows, loads and does at a key."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser import open_browser, requested_addresses, set_width
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer.extensions.alignments.explanation import explain, render_page

TEXT = "Two dogs run across the green grass."


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Return one browser for all tests: starting it takes seconds."""
    with open_browser(tmp_path_factory.mktemp("browser") / "profile") as driver:
        yield driver


@pytest.fixture
def show(browser, tmp_path):
    """Return a function that opens the page of an explanation."""

    def open_page(explanation, width=1280, scheme="light"):
        path = tmp_path / "page.html"
        path.write_text(render_page(explanation, "a model"), encoding="utf-8")
        set_width(browser, width)
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        media = {"features": [{"name": name, "value": value} for name, value in features.items()]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        requested_addresses(browser), browser.get_log("browser")  # of the page before
        browser.get(path.as_uri())
        return path.as_uri()

    return open_page


def text_of(browser, name):
    return browser.find_element(By.ID, name).text


def texts_of(browser, selector):
    return [
        each.get_property("textContent")
        for each in browser.find_elements(By.CSS_SELECTOR, selector)
    ]


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_explanation_page_fits_loads_nothing_and_has_no_error(
    width, scheme, browser, show, tiny_tokenizer
):
    address = show(
        explain(tiny_model(d_model=32, decoder_attention_heads=16), tiny_tokenizer, TEXT),
        width,
        scheme,
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (
        "nothing is cut off"
    )
    assert browser.get_log("browser") == [] and set(requested_addresses(browser)) == {address}
    color = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert color == {"light": "rgb(246, 246, 243)", "dark": "rgb(18, 19, 24)"}[scheme]


def test_explanation_page_shows_tokens_and_hypotheses(browser, show, tiny_tokenizer):
    found = explain(tiny_model(), tiny_tokenizer, TEXT)
    show(found)
    assert text_of(browser, "source") == TEXT and text_of(browser, "translation") == " ".join(
        found.translation.split()
    )
    rows = texts_of(browser, "#token-list .percent")
    assert (
        len(rows)
        == len(found.target_tokens)
        == len(browser.find_elements(By.CSS_SELECTOR, "#queries button"))
    )
    assert [float(row.strip("<%")) for row in rows] == pytest.approx(
        [100 * each.probability for each in found.target_tokens], abs=0.51
    )
    assert len(texts_of(browser, "#hypotheses li")) == len(found.hypotheses) == 4
    for state in ("kept", "dropped", "finished", "unfinished"):
        expected = sum(node.candidate.state == state for step in found.steps for node in step)
        assert len(browser.find_elements(By.CSS_SELECTOR, f"#tree .{state}")) == expected
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tree .best")) == 4


@pytest.mark.parametrize("place", [0, 1, 2])
def test_explanation_page_shows_every_head_of_every_kind(place, browser, show, tiny_tokenizer):
    found = explain(tiny_model(encoder_layers=2, decoder_layers=2), tiny_tokenizer, TEXT)
    show(found)
    attention = found.attentions[place]
    browser.find_elements(By.CSS_SELECTOR, "#kinds label")[place].click()
    heads = browser.find_elements(By.CSS_SELECTOR, "#heads label")
    assert len(heads) == 2 * (2 + 1), "with the mean of each layer"
    heads[3].click()
    assert text_of(browser, "head-name") == "Layer 2, head 1"
    row = len(browser.find_elements(By.CSS_SELECTOR, "#queries button")) - 1
    browser.find_elements(By.CSS_SELECTOR, "#queries button")[row].click()
    shown = [
        each.get_attribute("title") for each in browser.find_elements(By.CSS_SELECTOR, "#keys span")
    ]
    expected = [100 * weight for weight in attention.weights[1, 0, row].tolist()]
    assert [float(each.strip("<%")) for each in shown] == pytest.approx(expected, abs=0.71)
    heads[2].click()
    mean = [100 * weight for weight in attention.weights[0].mean(dim=0)[row].tolist()]
    shown = [
        each.get_attribute("title") for each in browser.find_elements(By.CSS_SELECTOR, "#keys span")
    ]
    assert [float(each.strip("<%")) for each in shown] == pytest.approx(mean, abs=0.71)


def test_explanation_page_works_with_the_keyboard(browser, show, tiny_tokenizer):
    found = explain(tiny_model(decoder_layers=2), tiny_tokenizer, TEXT)
    show(found)
    browser.execute_script("document.querySelector('#heads input:checked').focus()")
    assert text_of(browser, "head-name") == "Layer 2, mean of 2 heads"
    press(browser, Keys.ARROW_LEFT)
    assert text_of(browser, "head-name") == "Layer 2, head 2"
    press(browser, Keys.ARROW_UP)
    assert text_of(browser, "head-name") == "Layer 1, head 2"
    press(browser, Keys.TAB, Keys.TAB, Keys.ARROW_RIGHT)  # over the matrix to the tokens
    checked = [
        each.get_attribute("aria-checked")
        for each in browser.find_elements(By.CSS_SELECTOR, "#queries button")
    ]
    assert checked[:3] == ["false", "true", "false"]
    browser.execute_script("document.querySelector('#tree [tabindex=\"0\"]').focus()")
    step, place = found.places[0]
    parents = [found.steps[step][place].parent]
    press(browser, Keys.ARROW_LEFT)
    parent = found.steps[step - 1][parents[0]].candidate
    assert f"log-probability {parent.log_probability:.2f}".replace("-0", "−0").replace(
        " -", " −"
    ) in text_of(browser, "node-note")
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert "kept: the next step continued it" in text_of(browser, "node-note")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tree .node.on")) == step
    browser.find_elements(By.CSS_SELECTOR, "#hypotheses button")[1].click()
    assert "number 2 of the translations" in text_of(browser, "node-note")


def test_explanation_page_starts_at_the_alignment_head(browser, show, tiny_tokenizer):
    show(explain(tiny_model(decoder_layers=2, alignment_heads=[[0, 1]]), tiny_tokenizer, TEXT))
    assert text_of(browser, "head-name") == "Layer 1, head 2, which aligns words"


def test_explanation_page_says_which_attention_has_no_weights(browser, show, tiny_tokenizer):
    found = explain(tiny_long_model(cross_attention_type="linear_attention"), tiny_tokenizer, TEXT)
    show(found)
    assert "compute this attention without weights" in text_of(browser, "kind-note")
    assert not browser.find_element(By.ID, "attention-body").is_displayed()
    assert (
        browser.find_elements(By.CSS_SELECTOR, "#tree .kept") and browser.get_log("browser") == []
    )


def test_explanation_page_of_a_given_translation_shows_the_models_own(
    browser, show, tiny_tokenizer
):
    found = explain(tiny_model(), tiny_tokenizer, TEXT, translation="Zwei <b>Hunde</b> laufen.")
    show(found)
    assert text_of(browser, "translation") == "Zwei <b>Hunde</b> laufen."
    assert text_of(browser, "translation-name") == "Given translation"
    assert f"The model's own translation: {' '.join(found.hypotheses[0][0].split())}" in text_of(
        browser, "facts"
    )
