"""The page of the service in a real browser: Chromium and its driver
(`apt install chromium chromium-driver`).
"""

import re
import threading
import time
from contextlib import contextmanager
from functools import partial

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.browser import (
    find_problems,
    open_browser,
    requested_addresses,
    set_color_scheme,
    set_width,
)
from tests.services import running_service, shout
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.documents import DocumentTranslator
from vanilla_transformer.extensions.memory.suggestions import Suggestions
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.models import (
    LoadedModel,
    ModelLoader,
    Models,
    ServedModel,
)
from vanilla_transformer.extensions.serving.page import add_page
from vanilla_transformer.extensions.serving.queue import count_bytes
from vanilla_transformer.extensions.serving.service import (
    count_tokens_with,
    create_service,
    create_service_of,
    translate_with,
)
from vanilla_transformer.text.languages import Direction

GERMAN = Direction("en", "de")
SENTENCE = "A man is sleeping."


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Return one browser for all tests: starting it takes seconds."""
    with open_browser(tmp_path_factory.mktemp("browser") / "profile") as driver:
        yield driver


@pytest.fixture(autouse=True)
def nothing_logged_before(browser):
    browser.get("about:blank")
    browser.get_log("browser")
    requested_addresses(browser)
    set_width(browser, 1280)


@contextmanager
def running(service, limits, directions, title="A model", default=None):
    """Serve an application with a page; yield its address."""
    application = add_page(service, title, directions, default)
    with running_service(application, limits) as server:
        host, port = server.address
        yield f"http://{host}:{port}/"


def serving(translate, limits=None, directions=(), default=None, **options):
    """Serve a page for one model; yield its address."""
    limits = limits or Limits()
    options |= {"directions": directions}
    options.setdefault("count_tokens", count_bytes)
    service = create_service(translate, limits, **options)
    return running(service, limits, directions, default=default)


def serving_several(loads, **options):
    """Serve a page for models by the names of their directions, which `loads` load; yield its
    address.
    """
    limits, loader = Limits(), ModelLoader()
    directions = {name: Direction(*name.split("-")) for name in loads}
    models = []
    for name, load in loads.items():
        model = ServedModel(name, limits, load, None, [directions[name]], loader)
        models.append(model)
    service = create_service_of(Models(models), limits, **options)
    return running(service, limits, None, "Several models")


@contextmanager
def serving_a_model(tokenizer, **options):
    """Serve a page for a tiny model with a head that aligns; yield its address and its pipeline."""
    translate = TranslationPipeline(tiny_model(alignment_heads=[[0, 0]]), tokenizer)
    known = [name for name in known_options(translate) if name != "return_confidence"]
    documents = DocumentTranslator(translate)
    options |= {"documents": documents, "directions": [GERMAN]}
    options |= {"known": known, "count_tokens": count_tokens_with(tokenizer)}
    with serving(translate_with(translate, documents), **options) as url:
        yield url, translate


def swap(texts, options, format):
    """Translate `one two` by `TWO ONE`, with links, and with a character of two UTF-16 units before
    the words.
    """
    links = [[2, 5, 6, 9, 0.9], [6, 9, 2, 5, 0.8]]
    answers = []
    for rank in range(options.count):
        answer = {"text": "😀 TWO ONE", "score": -0.25 * (rank + 1), "alignment": links}
        answers.append(answer)
    return [answers]


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def texts_of(browser, selector):
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def wait_for_text(browser, selector):
    """Return the text of an element, once it is visible and has one."""
    return WebDriverWait(browser, 60).until(lambda _: find(browser, selector).text)


def wait_for_translation(browser, text):
    """Wait until the page shows a translation."""
    wait = WebDriverWait(browser, 60)
    wait.until(lambda _: find(browser, "#translation").text == text)


def type_text(browser, text):
    """Enter a text at once: a driver takes seconds to type thousands of characters, and types no
    emoji.
    """
    script = "arguments[0].value = arguments[1]"
    browser.execute_script(script, find(browser, "#source"), text)


def translate_in(browser, text):
    """Enter a text and click the button."""
    type_text(browser, text)
    find(browser, "#text-form button").click()


def upload(browser, path, content):
    """Choose a file and click the button."""
    path.write_bytes(content)
    find(browser, "#document").send_keys(str(path))
    find(browser, "#document-form button").click()


def allow_downloads(browser, folder):
    behavior = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)


def downloaded(browser, folder):
    """Return the name and the content of the download that the page offers."""
    link = find(browser, "#download a")
    wait = WebDriverWait(browser, 60)
    wait.until(lambda _: link.is_displayed())
    name = link.get_attribute("download")
    link.click()
    path = folder / name
    wait.until(lambda _: path.exists())
    return name, path.read_text()


def active_word(browser):
    return browser.execute_script("return document.activeElement.textContent")


def marked_words(browser):
    """Return the word that is marked and its counterparts."""
    return texts_of(browser, ".words .active"), texts_of(browser, ".words .linked")


def press(browser, *keys):
    ActionChains(browser).send_keys(*keys).perform()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_accessible_and_shows_what_the_model_returns(
    browser, axe, width, scheme, tiny_tokenizer, tmp_path
):
    set_width(browser, width)
    set_color_scheme(browser, scheme)
    with serving_a_model(tiny_tokenizer) as (url, translate):
        browser.get(url)
        translate_in(browser, " ")
        assert wait_for_text(browser, "#text-error") == "There is no text to translate."
        assert find_problems(browser, axe, width) == []
        translate_in(browser, f"{SENTENCE}\n\nTwo dogs run.")
        assert wait_for_text(browser, "#translation")
        rows = translate([SENTENCE, "Two dogs run."], num_return_sequences=4)
        best = [row[0]["translation_text"] for row in rows]
        shown = find(browser, "#translation").get_attribute("textContent")
        assert shown == "\n\n".join(best)
        options = {"return_scores": True, "return_alignments": True}
        (rows,) = translate([SENTENCE], num_return_sequences=4, **options)
        first = find(browser, "#lines details")
        all_words = first.find_elements(By.CSS_SELECTOR, "li .words")
        shown = [words.get_attribute("textContent") for words in all_words]
        assert shown == [row["translation_text"] for row in rows]
        scores = first.find_elements(By.CSS_SELECTOR, ".score")
        units = set()
        for rank, (row, score) in enumerate(zip(rows, scores, strict=True)):
            assert score.text == f"score {row['score']:.2f}".replace("-", "−")
            units |= {(rank, link[2]) for link in row["alignment"]}
        buttons = first.find_elements(By.CSS_SELECTOR, "li .words button")
        assert units and len(buttons) == len(units)
        allow_downloads(browser, tmp_path / "downloads")
        upload(browser, tmp_path / "page.html", b"<p>Two dogs run.</p>")
        name, content = downloaded(browser, tmp_path / "downloads")
        assert name == "page.de.html"
        assert re.fullmatch(r"<p>.+</p>", content)
        browser.execute_script("document.querySelector('.words button').focus()")
        assert find_problems(browser, axe, width) == []
        assert browser.get_log("browser") == []
        addresses = requested_addresses(browser)
        addresses = {address for address in addresses if not address.startswith("blob:")}
        assert addresses == {url, f"{url}translate"}


def test_page_shows_alignments_at_a_pointer_and_at_the_keyboard(browser):
    known = ["return_scores", "return_alignments"]
    with serving(swap, known=known, directions=[GERMAN]) as url:
        browser.get(url)
        translate_in(browser, "😀 one two")
        assert wait_for_text(browser, "#translation") == "😀 TWO ONE"
        scores = ["score −0.25", "score −0.50", "score −0.75", "score −1.00"]
        assert texts_of(browser, ".score") == scores
        source = browser.find_elements(By.CSS_SELECTOR, ".line-source button")
        labels = [word.get_attribute("aria-label") for word in source]
        assert labels == ["one, aligned with ONE", "two, aligned with TWO"]
        ActionChains(browser).move_to_element(source[0]).perform()
        assert marked_words(browser) == (["one"], ["ONE"] * 4)
        ActionChains(browser).move_to_element(find(browser, "h1")).perform()
        assert marked_words(browser) == ([], [])
        browser.execute_script("document.getElementById('copy').focus()")
        press(browser, Keys.TAB)
        assert marked_words(browser) == (["one"], ["ONE"] * 4)
        press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        assert marked_words(browser) == (["two"], ["TWO"] * 4), "the last word stays"
        press(browser, Keys.TAB)
        assert marked_words(browser) == (["TWO"], ["two"]), "of the best translation"
        press(browser, Keys.END)
        assert active_word(browser) == "ONE"
        assert marked_words(browser) == (["ONE"], ["one"])
        actions = ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.TAB)
        actions.key_up(Keys.SHIFT).perform()
        assert active_word(browser) == "two", "a group is entered where it was left"


def test_page_works_with_the_keyboard_alone(browser):
    with serving(shout, directions=[GERMAN]) as url:
        browser.get(url)
        assert find(browser, "#direction").text == "English to German"
        assert browser.switch_to.active_element.get_attribute("id") == "source"
        press(browser, "one", Keys.ENTER, "two")
        actions = ActionChains(browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER)
        actions.key_up(Keys.CONTROL).perform()
        assert wait_for_text(browser, "#translation") == "ONE\nTWO"
        assert find(browser, "#text-status").text.startswith("Translated 2 lines in ")
        reached = []
        for _ in range(4):
            press(browser, Keys.TAB)
            reached.append(active_word(browser))
        assert reached[:2] == ["Translate", "Copy the translation"]
        assert reached[2:] == ["Line 1: one", "Line 2: two"]
        press(browser, Keys.ENTER)
        assert texts_of(browser, "#lines li .words") == ["ONE"] * 4 + ["TWO"] * 4


def test_page_sends_the_chosen_languages(browser):
    asked = []

    def translate(texts, options, format):
        asked.append({"src_lang": options.src_lang, "tgt_lang": options.tgt_lang})
        return [[{"text": text}] * options.count for text in texts]

    directions = [Direction("en", "de"), Direction("en", "fr"), Direction("de", "en")]
    default = {"src_lang": "en", "tgt_lang": "fr"}
    options = {"known": ["src_lang", "tgt_lang"], "directions": directions}
    with serving(translate, **options, default=default) as url:
        browser.get(url)
        assert texts_of(browser, "#source-language option") == ["English", "German"]
        assert texts_of(browser, "#target-language option") == ["French", "German"]
        translate_in(browser, "one")
        assert wait_for_text(browser, "#translation") == "one"
        assert asked[-1] == {"src_lang": "en", "tgt_lang": "fr"}
        assert find(browser, "#translation").get_attribute("lang") == "fr"
        Select(find(browser, "#source-language")).select_by_visible_text("German")
        assert texts_of(browser, "#target-language option") == ["English"]
        translate_in(browser, "zwei")
        wait_for_translation(browser, "zwei")
        assert asked[-1] == {"src_lang": "de", "tgt_lang": "en"}
        assert find(browser, "#source").get_attribute("lang") == "de"


def choose(browser, source, target):
    Select(find(browser, "#source-language")).select_by_visible_text(source)
    Select(find(browser, "#target-language")).select_by_visible_text(target)


def type_live(browser, text):
    """Enter a text as if it were typed, without the button."""
    type_text(browser, text)
    browser.execute_script(
        "arguments[0].dispatchEvent(new Event('input'))", find(browser, "#source")
    )


def wait_for_live(browser, text):
    """Wait until the page shows the translation of a text that is typed."""
    WebDriverWait(browser, 60).until(lambda _: find(browser, "#live").text == text)


def test_page_translates_while_somebody_types(browser):
    proceed = threading.Event()

    def translate(texts, options, format):
        if "three" in texts[-1] and options.tgt_lang == "fr":
            assert proceed.wait(20)
        return [[f"{options.tgt_lang} {text}"] * options.count for text in texts]

    known = ["src_lang", "tgt_lang", "draft", "draft_bias"]
    directions = [Direction("en", "de"), Direction("en", "fr")]
    with serving(translate, known=known, directions=directions) as url:
        browser.get(url)
        type_live(browser, "one two")
        wait_for_live(browser, "fr one two")
        # An answer in a language that is no longer chosen is not shown.
        type_live(browser, "one two three")
        Select(find(browser, "#target-language")).select_by_value("de")
        proceed.set()
        wait_for_live(browser, "de one two three")
        # A text that comes back is translated again, after all was deleted and after the button.
        type_live(browser, "")
        wait_for_live(browser, "")
        type_live(browser, "one two three")
        wait_for_live(browser, "de one two three")
        find(browser, "#text-form button").click()
        wait_for_translation(browser, "de one two three")
        assert not find(browser, "#live").is_displayed()
        type_live(browser, "one two three")
        wait_for_live(browser, "de one two three")


def test_page_splits_paragraphs(browser):
    def translate(texts, options, format):
        unit = "sentences" if options.split_sentences else "lines"
        return [[f"{unit} of {text}"] * options.count for text in texts]

    with serving(translate, known=["draft", "draft_bias", "split_sentences"]) as url:
        browser.get(url)
        type_live(browser, "One. Two.")
        wait_for_live(browser, "sentences of One. Two.")
        find(browser, "#text-form button").click()
        wait_for_translation(browser, "sentences of One. Two.")


def test_page_keeps_the_words_that_it_has_shown(browser):
    proceed = threading.Event()

    def translate(texts, options, format):
        if "five" in texts[-1] and not options.draft_bias:
            assert proceed.wait(20)
        return [[f"de {text}"] * options.count for text in texts]

    with serving(translate, known=["draft", "draft_bias"]) as url:
        browser.get(url)
        type_live(browser, "one two three four")
        wait_for_live(browser, "de one two three four")
        type_live(browser, "one two three four five")
        wait_for_live(browser, "de one two three four …")
        proceed.set()
        wait_for_live(browser, "de one two three four five")
        # What the button said is of another text.
        find(browser, "#text-form button").click()
        wait_for_text(browser, "#text-status")
        wait_for_translation(browser, "de one two three four five")
        type_live(browser, "one two")
        assert find(browser, "#text-status").text == ""


def test_page_sends_a_correction(browser, tmp_path):
    def translate(texts, options, format):
        match = options.memory and options.memory.find(texts[0])
        return [[match.target if match else "Er geht."] * options.count]

    options = {"suggestions": Suggestions(tmp_path), "api_keys": ["the-key"]}
    with serving(translate, directions=[GERMAN], **options) as url:
        browser.get(url)
        find(browser, "#key").send_keys("the-key")
        translate_in(browser, "He goes.")
        wait_for_translation(browser, "Er geht.")
        find(browser, ".correction button").click()
        area = find(browser, ".correction textarea")
        area.clear()
        area.send_keys("Er läuft.")
        find(browser, ".correction form button").click()
        assert wait_for_text(browser, ".correction .note") == "Saved. It is used from now on."
        find(browser, "#text-form button").click()
        wait_for_translation(browser, "Er läuft.")


def test_page_asks_the_model_of_the_chosen_languages(browser, axe, tmp_path):
    loaded = []

    def load(name, known):
        def translate(texts, options, format):
            assert options.given.keys() - {"num_return_sequences"} == {*known}
            answers = []
            for text in texts:
                text = f"{name} {text}"
                answer = {"text": text, "score": -1.0} if known else text
                answers.append([answer] * options.count)
            return answers

        loaded.append(name)
        return LoadedModel(translate, lambda texts: [1] * len(texts), known)

    def fail():
        raise OSError("no such file")

    loads = {
        "en-de": partial(load, "en-de", ["return_scores"]),
        "en-fr": partial(load, "en-fr", []),
        "de-en": fail,
    }
    with serving_several(loads, api_keys=["the-key"]) as url:
        browser.get(url)
        find(browser, "#key").send_keys("the-key")
        choose(browser, "English", "German")
        assert loaded == []
        translate_in(browser, "one")
        assert wait_for_text(browser, "#translation") == "en-de one"
        assert loaded == ["en-de"]
        assert texts_of(browser, ".score") == ["score −1.00"] * 4
        choose(browser, "English", "French")
        translate_in(browser, "two")
        wait_for_translation(browser, "en-fr two")
        assert texts_of(browser, ".score") == []
        assert loaded == ["en-de", "en-fr"]
        assert browser.get_log("browser") == []
        assert find_problems(browser, axe, 1280) == []
        choose(browser, "German", "English")
        translate_in(browser, "three")
        reason = "The model de-en cannot be loaded (OSError)."
        assert wait_for_text(browser, "#text-error").startswith(reason)
        upload(browser, tmp_path / "text.md", b"a")
        assert wait_for_text(browser, "#document-error").startswith(reason)


REFUSED = {
    "too many characters": ("a" * 501, "A line may have at most 500 characters, got 501."),
    "too many characters in a line": (
        "a\n\n" + "a" * 501,
        "A line may have at most 500 characters, got 501 in line 3.",
    ),
    "too many tokens": (
        "😀" * 30,
        "The tokens of a text may be at most 100 (--max_tokens), got 120.",
    ),
    "too many tokens in a line": (
        "a\n\n" + "😀" * 30,
        "The tokens of a text may be at most 100 (--max_tokens), got 120 in line 3.",
    ),
    "too many lines": ("a\n" * 31, "A text may have at most 30 lines, got 31."),
    "a body that is too large": (
        "\0" * 400 + "\n" + "\0" * 400,
        "A request may have at most 4,000 bytes, got 4,",
    ),
    "no text": (" \n ", "There is no text to translate."),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_page_explains_a_refusal(text, message, browser, capfd):
    limits = Limits(
        max_characters=500,
        max_tokens=100,
        max_body_bytes=4000,
        max_texts=30,
    )
    with serving(shout, limits=limits) as url:
        browser.get(url)
        translate_in(browser, text)
        assert wait_for_text(browser, "#text-error").startswith(message)
        translate_in(browser, "one")
        assert wait_for_text(browser, "#translation") == "ONE", "the page still works"
        assert not find(browser, "#text-error").is_displayed()
    assert "Traceback" not in capfd.readouterr().err


REFUSED_FILES = {
    "an unknown ending": (
        "text.xlsx",
        b"",
        "The name of the file must end with .txt, .html, .htm, ",
    ),
    "no ending": ("text", b"", "The name of the file must end with "),
    "another encoding": ("text.md", b"\xe4", "The file must be text in UTF-8."),
    "a large file": ("text.md", b"a" * 4001, "A file may have at most 4,000 bytes, got 4,001."),
    "no XML": ("text.XML", b"<a>", "The text must be well-formed XML: "),
}


@pytest.mark.parametrize("kind", REFUSED_FILES)
def test_page_explains_why_it_translates_no_document(kind, browser, tiny_tokenizer, tmp_path):
    name, content, message = REFUSED_FILES[kind]
    sizes = {"max_body_bytes": 4000, "max_document_bytes": 4000}
    limits = Limits(max_characters=500, max_tokens=100, **sizes)
    with serving_a_model(tiny_tokenizer, limits=limits) as (url, _):
        browser.get(url)
        find(browser, "#document-form button").click()
        assert wait_for_text(browser, "#document-error") == "Choose a file first."
        upload(browser, tmp_path / name, content)
        wait = WebDriverWait(browser, 60)
        wait.until(lambda _: find(browser, "#document-error").text.startswith(message))
        assert not find(browser, "#download").is_displayed()


def test_page_has_a_deadline(browser):
    def translate(texts, options, format):
        time.sleep(1.5)
        return shout(texts, options, format)

    with serving(translate, limits=Limits(request_seconds=1)) as url:
        browser.get(url)
        translate_in(browser, "one")
        error = wait_for_text(browser, "#text-error")
        assert error == "The request took longer than 1 seconds (--request_seconds)."


def test_page_says_that_the_service_is_gone(browser):
    with serving(shout) as url:
        browser.get(url)
    translate_in(browser, "one")
    error = wait_for_text(browser, "#text-error")
    assert error == "The service does not answer. Try again later."


def test_page_asks_for_a_key(browser):
    with serving(shout, api_keys=["the-key"]) as url:
        browser.get(url)
        translate_in(browser, "one")
        error = wait_for_text(browser, "#text-error")
        assert error == "The service needs a valid API key."
        assert find(browser, "#key").get_attribute("type") == "password"
        press(browser, "the-key", Keys.ENTER)  # into the field, which has the focus
        assert wait_for_text(browser, "#translation") == "ONE"
