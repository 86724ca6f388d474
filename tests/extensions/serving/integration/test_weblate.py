"""Weblate, a web site of translators, asks the service as it asks LibreTranslate."""

import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.processes import wait_until
from tests.services import SlowModel, running_service
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.documents import DocumentTranslator
from vanilla_transformer.extensions.documents.document_process import start_server
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.text.languages import Direction

SECONDS = 20  # that Weblate waits for an answer
BATCH = 20  # messages
# After one of these, Weblate asks a service no more for half an hour.
SWITCHED_OFF = (401, 403, 429, 456, 503)
DIRECTIONS = [Direction("en", "de")]
MESSAGES = [f"Message {number}: %s of {{name}}" for number in range(BATCH - 4)]
MESSAGES += ["Save", "Two\nlines\n", "<b>Bold</b> & 'quoted'", "Ünïcödé …"]


class Weblate:
    """Send the requests of Weblate, one after the other."""

    def __init__(self, address: tuple[str, int], key: str = "", seconds: float = SECONDS):
        headers = {"Referer": "http://weblate.example", "Accept": "application/json; charset=utf-8"}
        host, port = address
        self._client = httpx.Client(
            base_url=f"http://{host}:{port}", headers=headers, timeout=seconds
        )
        self._key = key

    def languages(self) -> list[str]:
        answer = self._client.get("/languages")
        answer.raise_for_status()
        return [language["code"] for language in answer.json()]

    def direction(self, source: str, target: str) -> tuple[str, str] | None:
        """Return the codes of a direction as the service spells them, if it lists both."""
        known = self.languages()
        for source_code in spellings(source):
            for target_code in spellings(target):
                if source_code in known and target_code in known and source_code != target_code:
                    return source_code, target_code
        return None

    def translate(self, texts: Sequence[str], source: str = "en", target: str = "de") -> list[str]:
        body = {"api_key": self._key, "q": [*texts], "source": source, "target": target}
        answer = self._client.post("/translate", json=body)
        answer.raise_for_status()
        translated = answer.json()["translatedText"]
        assert isinstance(translated, list) and len(translated) == len(texts)
        return translated


def spellings(code: str) -> list[str]:
    """Return the codes of a language that Weblate looks for, the most special one first."""
    parts = code.split("_")
    codes = []
    while parts:
        codes.append("-".join(parts))
        parts.pop()
    return codes


def mark(texts, options, format):
    return [[f"<{text}>"] for text in texts]


def serving(translate=mark, directions=DIRECTIONS, limits=None, **options):
    """Run a service on a thread, as its context manager yields it."""
    limits = limits or Limits()
    service = create_service(translate, limits, directions=directions, **options)
    return running_service(service, limits)


def refusal(request):
    """Return the answer that refuses a request."""
    with pytest.raises(httpx.HTTPStatusError) as caught:
        request()
    return caught.value.response


def test_weblate_finds_both_languages_of_a_direction():
    with serving() as server:
        weblate = Weblate(server.address)
        assert weblate.languages() == ["en", "de"]
        assert weblate.direction("en", "de") == ("en", "de")
        assert weblate.direction("en_GB", "de_AT") == ("en", "de")
        assert weblate.direction("en", "fr") is None
        listed = httpx.get(f"http://127.0.0.1:{server.address[1]}/languages").json()
        english, german = listed
        assert english["targets"] == ["de"]
        assert german["targets"] == []
    with serving(directions=[Direction("en", "pt-BR")]) as server:
        assert Weblate(server.address).direction("en", "pt_BR") == ("en", "pt-BR")


def test_weblate_gets_a_batch_in_its_order():
    with serving(limits=Limits(max_batch_size=8)) as server:
        weblate = Weblate(server.address)
        for texts in (MESSAGES, MESSAGES[:1], [*MESSAGES[:3], *MESSAGES[:3]]):
            assert weblate.translate(texts) == [f"<{text}>" for text in texts]
        assert weblate.translate(["a"], "en-GB", "de-AT") == ["<a>"]


def test_weblate_sends_its_key_with_the_texts():
    with serving(api_keys=["secret"]) as server:
        assert Weblate(server.address, "secret").translate(["a"]) == ["<a>"]
        answer = refusal(lambda: Weblate(server.address, "other").translate(["a"]))
        assert answer.status_code in SWITCHED_OFF
        assert "API key" in answer.json()["error"]
        assert Weblate(server.address).languages() == ["en", "de"]


def test_weblate_asks_again_after_a_mistake():
    with serving(limits=Limits(max_characters=50)) as server:
        weblate = Weblate(server.address)
        answers = [refusal(lambda: weblate.translate(["a" * 60]))]
        answers.append(refusal(lambda: weblate.translate(["a"], "en", "fr")))
        for answer, words in zip(answers, ("--max_characters", "direction"), strict=True):
            assert answer.status_code not in SWITCHED_OFF
            assert words in answer.json()["error"]
        assert weblate.translate(["a"]) == ["<a>"]


def test_weblate_hears_that_a_service_is_busy():
    """Weblate switches it off for both 429 and 503, but other clients try again after 429."""
    slow, limits = SlowModel(), Limits(max_waiting=BATCH, max_batch_size=1)
    service = create_service(slow, limits, directions=DIRECTIONS)
    (model,) = service.state.models
    with running_service(service, limits) as server, ThreadPoolExecutor(2) as pool:
        weblate = Weblate(server.address)
        answers = [pool.submit(Weblate(server.address).translate, ["a"])]
        assert slow.started.wait(SECONDS)
        answers.append(pool.submit(Weblate(server.address).translate, ["b"] * BATCH))
        wait_until(lambda: model.batcher.waiting == BATCH)
        answer = refusal(lambda: weblate.translate(["c"]))
        assert answer.status_code == 429
        assert answer.headers["Retry-After"] == "1"
        assert "(--max_waiting)" in answer.json()["error"]
        slow.proceed.set()
        first, second = answers
        assert first.result() == ["A"]
        assert second.result() == ["B"] * BATCH
        assert weblate.translate(["c"]) == ["C"]


@pytest.fixture(scope="module")
def pipeline(tiny_tokenizer):
    start_server()
    return TranslationPipeline(tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=8)


PAGE = "".join(f"<p>The dog number {number} sleeps.</p>\n" for number in range(150))
LONG = 300  # seconds: calls are counted, whose time is that of the machine
MOST_SENTENCES = 75  # of the page that come first: those at work and those in the queue


def test_weblate_gets_its_batch_between_the_sentences_of_a_document(pipeline):
    documents, formats = DocumentTranslator(pipeline), []
    answer = translate_with(pipeline, documents)
    proceed = threading.Event()

    def translate(texts, options, format):
        formats.extend([format] * len(texts))
        assert proceed.wait(LONG)
        return answer(texts, options, format)

    limits = Limits(request_seconds=LONG)
    service = create_service(
        translate, limits, documents=documents, known=known_options(pipeline), directions=DIRECTIONS
    )
    (model,) = service.state.models
    with running_service(service, limits) as server, ThreadPoolExecutor(2) as pool:
        host, port = server.address
        page = {"text": PAGE, "format": "html"}
        address = f"http://{host}:{port}/translate"
        translated_page = pool.submit(httpx.post, address, json=page, timeout=LONG)
        wait_until(lambda: formats)
        waiting = model.batcher.waiting
        weblate = Weblate(server.address, seconds=LONG)
        messages = pool.submit(weblate.translate, MESSAGES)
        # The first call does not end before the messages stand in the queue.
        wait_until(lambda: model.batcher.waiting >= waiting + BATCH)
        proceed.set()
        assert len(messages.result()) == BATCH
        assert translated_page.result().status_code == 200
    end_of_messages = len(formats) - formats[::-1].index("text")
    assert formats[:end_of_messages].count("html") <= MOST_SENTENCES
    assert formats.count("html") > MOST_SENTENCES


# Texts in which Weblate put a mark instead of each placeholder
MARKED = ["Delete [X7X] files?", "[X0X]: saved to [X14X]", "Bold [X5X]text[X13X]"]


def test_weblate_gets_its_marks_back(pipeline):
    """Weblate also finds a mark with spaces before its last bracket."""
    with serving(translate_with(pipeline)) as server:
        answers = Weblate(server.address, seconds=LONG).translate(MARKED)
    for text, answer in zip(MARKED, answers, strict=True):
        marks = re.findall(r"(\[X\d+X)\]", text)
        assert sorted(re.findall(r"(\[X\d+X) *\]", answer)) == sorted(marks)
