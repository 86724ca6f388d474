"""The page of an explanation in a real browser: what it shows, loads and does at a key."""

from collections import Counter
from itertools import chain

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
        media = {"features": [{"name": name, "value": features[name]} for name in features]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        requested_addresses(browser), browser.get_log("browser")  # of the page before
        browser.get(path.as_uri())
        return path.as_uri()

    return open_page


def text_of(browser, name):
    return browser.find_element(By.ID, name).text


def texts_of(browser, selector):
    elements = browser.find_elements(By.CSS_SELECTOR, selector)
    return [element.get_property("textContent") for element in elements]


def shown_weights(browser):
    """Return the weights of the keys, in percent, as the page shows them."""
    keys = browser.find_elements(By.CSS_SELECTOR, "#keys span")
    return [float(key.get_attribute("title").strip("<%")) for key in keys]


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_explanation_page_fits_loads_nothing_and_has_no_error(
    width, scheme, browser, show, tiny_tokenizer
):
    model = tiny_model(d_model=32, decoder_attention_heads=16)
    address = show(explain(model, tiny_tokenizer, TEXT), width, scheme)
    shown_width = "return document.documentElement.scrollWidth"
    assert browser.execute_script(shown_width) <= width, "nothing is cut off"
    assert browser.get_log("browser") == []
    assert set(requested_addresses(browser)) == {address}
    shown_color = "return getComputedStyle(document.body).backgroundColor"
    color = browser.execute_script(shown_color)
    assert color == {"light": "rgb(246, 246, 243)", "dark": "rgb(18, 19, 24)"}[scheme]


def test_explanation_page_shows_tokens_and_hypotheses(browser, show, tiny_tokenizer):
    explanation = explain(tiny_model(), tiny_tokenizer, TEXT)
    show(explanation)
    assert text_of(browser, "source") == TEXT
    words = explanation.translation.split()
    assert text_of(browser, "translation") == " ".join(words)
    rows = texts_of(browser, "#token-list .percent")
    buttons = browser.find_elements(By.CSS_SELECTOR, "#queries button")
    assert len(rows) == len(buttons)
    for row, token in zip(rows, explanation.target_tokens, strict=True):
        percent = float(row.strip("<%"))
        assert percent == pytest.approx(100 * token.probability, abs=0.51)
    assert len(texts_of(browser, "#hypotheses li")) == len(explanation.hypotheses) == 4
    states = Counter(node.candidate.state for node in chain(*explanation.steps))
    for state in ("kept", "dropped", "finished", "unfinished"):
        nodes = browser.find_elements(By.CSS_SELECTOR, f"#tree .{state}")
        assert len(nodes) == states[state]
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tree .best")) == 4


@pytest.mark.parametrize("number", [0, 1, 2])
def test_explanation_page_shows_every_head_of_a_kind(number, browser, show, tiny_tokenizer):
    model = tiny_model(encoder_layers=2, decoder_layers=2)
    explanation = explain(model, tiny_tokenizer, TEXT)
    show(explanation)
    weights = explanation.attentions[number].weights
    browser.find_elements(By.CSS_SELECTOR, "#kinds label")[number].click()
    heads = browser.find_elements(By.CSS_SELECTOR, "#heads label")
    assert len(heads) == 2 * (2 + 1), "with the mean of each layer"
    heads[3].click()
    assert text_of(browser, "head-name") == "Layer 2, head 1"
    buttons = browser.find_elements(By.CSS_SELECTOR, "#queries button")
    buttons[-1].click()
    row = len(buttons) - 1
    expected = [100 * weight for weight in weights[1, 0, row].tolist()]
    assert shown_weights(browser) == pytest.approx(expected, abs=0.71)
    heads[2].click()
    mean = [100 * weight for weight in weights[0].mean(dim=0)[row].tolist()]
    assert shown_weights(browser) == pytest.approx(mean, abs=0.71)


def test_explanation_page_works_with_the_keyboard(browser, show, tiny_tokenizer):
    explanation = explain(tiny_model(decoder_layers=2), tiny_tokenizer, TEXT)
    show(explanation)
    browser.execute_script("document.querySelector('#heads input:checked').focus()")
    assert text_of(browser, "head-name") == "Layer 2, mean of 2 heads"
    press(browser, Keys.ARROW_LEFT)
    assert text_of(browser, "head-name") == "Layer 2, head 2"
    press(browser, Keys.ARROW_UP)
    assert text_of(browser, "head-name") == "Layer 1, head 2"
    # Over the matrix to the tokens
    press(browser, Keys.TAB, Keys.TAB, Keys.ARROW_RIGHT)
    buttons = browser.find_elements(By.CSS_SELECTOR, "#queries button")
    checked = [button.get_attribute("aria-checked") for button in buttons[:3]]
    assert checked == ["false", "true", "false"]
    browser.execute_script("document.querySelector('#tree [tabindex=\"0\"]').focus()")
    step, column = explanation.places[0]
    parent_column = explanation.steps[step][column].parent
    press(browser, Keys.ARROW_LEFT)
    parent = explanation.steps[step - 1][parent_column].candidate
    note = f"log-probability {parent.log_probability:.2f}"
    note = note.replace("-0", "−0").replace(" -", " −")
    assert note in text_of(browser, "node-note")
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert "kept: the next step continued it" in text_of(browser, "node-note")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tree .node.on")) == step
    browser.find_elements(By.CSS_SELECTOR, "#hypotheses button")[1].click()
    assert "number 2 of the translations" in text_of(browser, "node-note")


def test_explanation_page_starts_at_the_alignment_head(browser, show, tiny_tokenizer):
    model = tiny_model(decoder_layers=2, alignment_heads=[[0, 1]])
    show(explain(model, tiny_tokenizer, TEXT))
    assert text_of(browser, "head-name") == "Layer 1, head 2, which aligns words"


def test_explanation_page_names_attention_without_weights(browser, show, tiny_tokenizer):
    model = tiny_long_model(cross_attention_type="linear_attention")
    show(explain(model, tiny_tokenizer, TEXT))
    assert "compute this attention without weights" in text_of(browser, "kind-note")
    assert not browser.find_element(By.ID, "attention-body").is_displayed()
    assert browser.find_elements(By.CSS_SELECTOR, "#tree .kept")
    assert browser.get_log("browser") == []


def test_explanation_page_shows_the_models_own_translation(browser, show, tiny_tokenizer):
    translation = "Zwei <b>Hunde</b> laufen."
    explanation = explain(tiny_model(), tiny_tokenizer, TEXT, translation=translation)
    show(explanation)
    assert text_of(browser, "translation") == translation
    assert text_of(browser, "translation-name") == "Given translation"
    words = explanation.hypotheses[0][0].split()
    expected = f"The model's own translation: {' '.join(words)}"
    assert expected in text_of(browser, "facts")
