"""Documents that take all time or memory: their requests are refused, and the service answers
others meanwhile.
"""

import json
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlencode

import psutil
import pytest

from tests.hostile_documents import HostileTranslator
from tests.processes import wait_until
from tests.services import running_service
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.extensions.documents.document_process import start_server
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service, translate_with

PAGE = "<p>Two <b>dogs</b>.</p>"
LIMITS = {"request_seconds": 30, "max_document_memory": 100_000_000, "grace_seconds": 3}


@pytest.fixture(scope="module")
def pipeline(tiny_tokenizer):
    start_server()
    options = {"device": "cpu", "max_new_tokens": 8}
    return TranslationPipeline(tiny_model(), tiny_tokenizer, **options)


def serve(pipeline, translate=None, **limits):
    """Run a service of documents on a thread, as its context manager yields it."""
    documents, limits = HostileTranslator(pipeline), Limits(**LIMITS | limits)
    answer = translate or translate_with(pipeline, documents)
    known = known_options(pipeline)
    service = create_service(answer, limits, known=known, documents=documents)
    return running_service(service, limits)


def ask(server, text, **entries):
    """Return the status and the content of an answer."""
    connection = HTTPConnection(*server.address, timeout=60)
    body = json.dumps({"text": text} | entries)
    request = ("POST", "/translate", body) if text else ("GET", "/health", body)
    connection.request(*request)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def ask_endlessly(server):
    """Send a document that takes all time."""
    return ask(server, "endless", format="html")


def start(function, *arguments):
    """Call a function on a thread, and return the thread."""
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    return thread


def children():
    """Return the numbers of the processes that read documents: not their server, and no tracker of
    resources.
    """
    return {process.pid for process in psutil.Process().children(recursive=True)}


# Kind of the document → status and words of the answer.
SECONDS = "within 5 seconds (--request_seconds). Split it."
REFUSED = {
    "endless": (422, f"must be read and written {SECONDS}"),
    "large": (413, "in 100,000,000 bytes of memory (--max_document_memory). Split it."),
    "deadly": (422, "The process that read or wrote the document was killed."),
    "faulty": (500, "The model failed to translate the text."),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_service_refuses_a_hostile_document_in_one_line(kind, pipeline):
    status, said = REFUSED[kind]
    with serve(pipeline, request_seconds=5 if kind == "endless" else 60) as server:
        before, answers = children(), []
        refused = start(lambda: answers.append(ask(server, kind, format="html")))
        while refused.is_alive():
            assert ask(server, "")[0] == 200
            assert ask(server, "Two dogs.")[0] == 200
            time.sleep(0.05)
        ((answered, content),) = answers
        assert answered == status
        assert said in content["detail"]
        assert "\n" not in content["detail"]
        assert ask(server, PAGE, format="html")[0] == 200
        assert ask(server, "")[1]["failures"] == 0
        wait_until(lambda: children() <= before)


@pytest.mark.sweep
def test_service_translates_documents_of_others_beside_slow_ones(pipeline):
    with serve(pipeline, request_seconds=20) as server:
        slow = [start(ask_endlessly, server) for _ in range(3)]
        others = {"timeout": 60, "source_address": ("127.0.0.2", 0)}
        connection = HTTPConnection(*server.address, **others)
        started = time.monotonic()
        body = json.dumps({"text": PAGE, "format": "html"})
        connection.request("POST", "/translate", body)
        assert connection.getresponse().status == 200
        assert time.monotonic() - started < 15
        server.stop()
        for thread in slow:
            thread.join()


# Kind of the body → body, status, words of the answer.
LARGE = {
    "a page": (json.dumps({"text": PAGE + "<!-- -->" * 50, "format": "html"}), 200, "<!-- -->"),
    "lists": (json.dumps({"text": [[]] * 200, "format": "html"}), 422, "besides its strings"),
    "a form": (
        urlencode({"format": "html", "q": PAGE + "<!-- -->" * 50, "source": "en", "target": "de"}),
        200,
        "translatedText",
    ),
    "no JSON": ("{" * 500, 422, "must be valid JSON"),
    "a sentence": (json.dumps({"text": "a" * 9000, "format": "html"}), 422, "8192 characters"),
}


@pytest.mark.parametrize("kind", LARGE)
def test_service_parses_a_large_body_beside_others(kind, pipeline):
    body, expected, words = LARGE[kind]
    with serve(pipeline, max_body_bytes=200) as server:
        connection = HTTPConnection(*server.address, timeout=60)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/translate", body, headers)
        answer = connection.getresponse()
        content = answer.read().decode()
        assert answer.status == expected and words in content


@pytest.mark.sweep
def test_service_refuses_a_document_that_waits_for_the_model(pipeline):
    """It is the model that takes the time, so the document has not to be split."""
    proceed = threading.Event()

    def wait(texts, options, format):
        assert proceed.wait(60)
        return [[(text.upper(), None)] for text in texts]

    with serve(pipeline, wait, request_seconds=6) as server:
        status, content = ask(server, PAGE, format="html")
        proceed.set()
    assert status == 503 and "took longer than 6 seconds" in content["detail"]


def test_service_ends_the_process_of_a_client_that_hangs_up(pipeline):
    with serve(pipeline, request_seconds=60) as server:
        before = children()
        connection = HTTPConnection(*server.address, timeout=60)
        body = json.dumps({"text": "endless", "format": "html"})
        connection.request("POST", "/translate", body)
        wait_until(lambda: children() - before)
        connection.close()
        wait_until(lambda: children() <= before)


def test_service_ends_beside_a_slow_document(pipeline):
    with serve(pipeline, request_seconds=60) as server:
        before = children()
        slow = start(ask_endlessly, server)
        wait_until(lambda: children() - before)
        started = time.monotonic()
        server.stop()
        server.thread.join()
        assert time.monotonic() - started < 6
        wait_until(lambda: children() <= before)
        slow.join()


def test_service_lets_texts_pass_between_the_sentences_of_a_document(pipeline):
    """A request of one line once waited for the whole document. While a batch is at work, the next
    one is full.
    """
    batches, waiting = [], []

    def record(texts, options, format):
        batches.append((format, len(texts)))
        time.sleep(0.05)
        (model,) = server._models
        waiting.append(model.batcher.waiting)
        if format != "text":
            return [[Translation(sentence.text.upper())] for sentence in texts]
        return [[text.upper()] for text in texts]

    with serve(pipeline, record, max_batch_size=2, request_seconds=30) as server:
        page = "".join(f"<p>Sentence {number}.</p>" for number in range(40))
        long = start(lambda: ask(server, page, format="html"))
        wait_until(lambda: batches)
        assert ask(server, "Two dogs.") == (200, {"translations": [["TWO DOGS."]]})
        passed = len(batches)
        long.join()
    assert passed < len(batches)
    assert max(size for _, size in batches) == 2
    assert all(waiting[1:-4])
