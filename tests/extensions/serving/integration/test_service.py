"""The HTTP service: translations, limits, health, metrics and graceful shutdown."""

import json
import signal
import socket
import time
import urllib.error
import urllib.request
from itertools import product

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.processes import Forked
from tests.services import TEXTS, SlowModel, shout
from tests.sweeps import examples
from vanilla_transformer import TranslationPipeline, __version__
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import (
    count_tokens_with,
    create_service,
    translate_with,
)
from vanilla_transformer.loading.model_folders import save_model_folder


def shout_or_break(texts, options, format):
    if "break" in texts:
        raise RuntimeError("broken")
    return shout(texts, options, format)


LIMITS = Limits(
    max_body_bytes=2000,
    max_texts=3,
    max_characters=20,
    max_tokens=40,
    max_hypotheses=2,
)

WELL = {"status": "ok", "failures": 0, "last_failure": None}


def serving(translate=shout_or_break, limits=None, **options):
    service = create_service(translate, limits, **options)
    return TestClient(service, raise_server_exceptions=False)


@pytest.fixture
def client():
    with serving(limits=LIMITS, metrics=True) as client:
        yield client


@pytest.fixture(scope="module")
def client_of_shout():
    with serving(shout, Limits(max_texts=3, max_characters=40)) as client:
        yield client


def test_translate_answers_a_text_and_a_list(client):
    answer = client.post("/translate", json={"text": "one"})
    assert answer.json() == {"translations": [["ONE"]]}
    asked = {"text": ["one", "two"], "num_return_sequences": 2}
    answer = client.post("/translate", json=asked)
    assert answer.json() == {"translations": [["ONE", "ONE"], ["TWO", "TWO"]]}
    assert client.post("/translate", json={"text": []}).json() == {"translations": []}


# Body → (status, words of the answer).
REFUSED = {
    "many texts": ({"text": ["a"] * 4}, 422, "at most 3 (--max_texts), got 4"),
    "many characters": ({"text": "a" * 21}, 422, "at most 20 (--max_characters), got 21"),
    "many tokens": (
        {"text": "\U0001f642" * 11},
        422,
        "tokens of a text may be at most 40 (--max_tokens), got 44",
    ),
    "many hypotheses": (
        {"text": "a", "num_return_sequences": 3},
        422,
        "at most 2 (--max_hypotheses), got 3",
    ),
    "enormous hypotheses": (
        b'{"text": "a", "num_return_sequences": 1%s}' % (b"0" * 1500),
        422,
        "must be an integer from 1 to 500, got 1000",
    ),
    "an entry unknown": (
        {"text": "a", "seed": 1, "num_beams": 4},
        422,
        "The body has an unknown entry, number 3 of 3. Correct its name, or leave it out.",
    ),
    "unknown entry": ({"text": "a", "texts": "a"}, 422, "unknown entry. Did you mean `text`?"),
    "scores that the model lacks": (
        {"text": "a", "return_tokens": True},
        422,
        "Leave `return_tokens` out",
    ),
    "a number to stream": (
        {"text": "a", "stream": 1},
        422,
        "`stream` must be true or false, got 1.",
    ),
    "an integer beyond floats": (
        b'{"text": "a", "rerank_reverse_weight": 1%s}' % (b"0" * 999),
        422,
        "must be a number in [0, 100], got 1000",
    ),
    "an enormous float": (
        b'{"text": "a", "rerank_reverse_weight": 1e999}',
        422,
        "must be a number in [0, 100], got inf.",
    ),
    "no text": ({"texts": "a"}, 422, "with the entry `text`"),
    "a number": ({"text": 7}, 422, "must be a string or a list of strings, got a number"),
    "a number in a list": ({"text": ["a", 7]}, 422, "must be a string, got a number at position 1"),
    "a number in a stream": (
        {"text": ["a", 7], "stream": True},
        422,
        "must be a string, got a number at position 1",
    ),
    "null": ({"text": None}, 422, "got null"),
    "a list": ([], 422, "must be a JSON object"),
    "NaN": (b'{"text": "a", "num_return_sequences": NaN}', 422, "valid JSON, which has no NaN"),
    "Infinity": (b'{"text": Infinity}', 422, "has no Infinity"),
    "a lone surrogate": (
        b'{"text": ["a", "\\ud800"]}',
        422,
        "`text` must be valid Unicode, got a lone surrogate.",
    ),
    "no JSON": (b"{", 422, "must be valid JSON"),
    "no body": (b"", 422, "must be valid JSON"),
    "another encoding": (b'{"text": "\xff"}', 422, "must be valid JSON"),
    "deep nesting": (b"[" * 1900, 422, "must be valid JSON"),
    "a large body": ({"text": "a" * 3000}, 413, "at most 2000 bytes (--max_body_bytes)"),
    "a text that fails": ({"text": "break"}, 500, "model failed to translate"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_translate_explains_errors_and_keeps_serving(kind, client):
    body, status, said = REFUSED[kind]
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post("/translate", content=content)
    assert answer.status_code == status and said in answer.json()["detail"]
    assert len(answer.content) < 400, "an error must not repeat the request"
    assert client.post("/translate", json={"text": "one"}).status_code == 200


def test_translate_refuses_a_value_at_each_depth_of_nesting():
    """JSON may be nested nearly as deeply as Python's stack allows, and a message that shows it
    needs a stack, too.
    """
    with serving(known=["glossary"]) as client:
        for depth in range(800, 1000):
            nested = b"[" * depth + b"]" * depth
            content = b'{"text": "a", "glossary": {"a": %s}}' % nested
            answer = client.post("/translate", content=content)
            assert answer.status_code == 422, depth
            assert len(answer.content) < 200, depth


def test_translate_refuses_a_lone_surrogate_in_each_entry():
    values = ("\ud800", ["\ud800"], {"a": "\ud800"})
    with serving(known=ENTRIES) as client:
        for name, value in product(ENTRIES, values):
            content = json.dumps({"text": "a", name: value})
            answer = client.post("/translate", content=content)
            assert answer.status_code == 422 and len(answer.content) < 200, name
        health = client.get("/health").json()
        assert health.items() >= WELL.items()


def test_translate_refuses_a_huge_invalid_list_at_once():
    """Not each of the 300,000 numbers has its own error."""
    with serving() as client:
        start = time.monotonic()
        answer = client.post("/translate", content=json.dumps({"text": [1] * 300_000}))
        assert answer.status_code == 422 and len(answer.content) < 200
        assert time.monotonic() - start < 1


def test_body_limit_counts_a_chunked_body(client):
    chunks = iter([b'{"text": "', *[b"a" * 100] * 30, b'"}'])
    assert client.post("/translate", content=chunks).status_code == 413


def test_limits_refuse_a_value_below_1():
    message = "`max_texts` must be an integer from 1 to .*, got 0"
    with pytest.raises(ValueError, match=message):
        Limits(max_texts=0)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))


def containers(values):
    """Return lists and dictionaries of values."""
    return st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=5), values)


VALUES = st.recursive(SCALARS, containers)
UNICODE = st.text(st.characters(), max_size=30)
TEXT_LISTS = st.lists(st.text(st.characters()), max_size=4)
COUNTS = st.integers(-1, 9)
REQUESTS = st.fixed_dictionaries(
    {"text": VALUES | UNICODE | TEXT_LISTS},
    optional={"num_return_sequences": COUNTS | VALUES, "other": VALUES},
)


@given(body=st.binary(max_size=60) | (VALUES | REQUESTS).map(json.dumps))
@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_translate_answers_any_body(client_of_shout, body):
    """Each body gets translations, or one short reason, and the service keeps running."""
    answer = client_of_shout.post("/translate", content=body)
    assert answer.status_code in (200, 422)
    if answer.status_code == 422:
        assert [*answer.json()] == ["detail"]
        assert 0 < len(answer.json()["detail"]) < 300
    else:
        texts = json.loads(body)["text"]
        texts = [texts] if isinstance(texts, str) else texts
        translations = [row[0] for row in answer.json()["translations"]]
        assert translations == [text.upper() for text in texts]
    assert client_of_shout.get("/health").json()["status"] == "ok"


# --- Server-sent events ---------------------------------------------------------------------------


def events(translate, limits=None, **entries):
    with serving(translate, limits) as client:
        body = {"text": TEXTS, "stream": True} | entries
        answer = client.post("/translate", json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("\n\n")
    lines = answer.text.split("\n\n")[:-1]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    return sorted(events, key=lambda event: event["position"])


def test_stream_has_an_event_for_each_text(tiny_model, tiny_tokenizer):
    translate = TranslationPipeline(tiny_model, tiny_tokenizer)
    answers = events(translate_with(translate), num_return_sequences=2)
    expected = []
    for position, rows in enumerate(translate(TEXTS, num_return_sequences=2)):
        texts = [row["translation_text"] for row in rows]
        expected.append({"position": position, "translations": texts})
    assert answers == expected


def test_stream_reports_the_refusal_and_the_failure_of_one_text():
    texts = ["one", "two three", "break"]
    first, second, third = events(shout_or_break, Limits(max_tokens=6), text=texts)
    assert first["translations"] == ["ONE"]
    assert second["status"] == 422
    assert "at most 6" in second["detail"]
    reason = "The model failed to translate the text."
    assert third == {"position": 2, "status": 500, "detail": reason}


# --- Health and metrics ---------------------------------------------------------------------------


def test_health_counts_the_failures_of_the_model(client):
    health = client.get("/health").json()
    assert health.items() >= WELL.items()
    client.post("/translate", json={"text": "break"})
    answer = client.get("/health")
    assert answer.status_code == 200
    about = {"version": __version__, "model": "default", "sha256": None}
    failed = WELL | {"failures": 1, "last_failure": "RuntimeError"}
    assert answer.json() == failed | about


def test_health_reports_a_broken_model():
    def fail(texts, options, format):
        raise SystemExit("no device")

    with serving(fail) as client:
        assert client.post("/translate", json={"text": "one"}).status_code == 500
        answer = client.get("/health")
        assert answer.status_code == client.head("/health").status_code == 503
        assert answer.json()["status"] == "broken"
        # Later requests must not wait.
        assert client.post("/translate", json={"text": "one"}).status_code == 500


def test_health_reports_a_slow_batch():
    model = SlowModel()
    with serving(model, Limits(request_seconds=1)) as client:
        assert client.post("/translate", json={"text": "one"}).status_code == 503
        time.sleep(0.1)  # the batch began after the request
        assert client.get("/health").json()["status"] == "slow"
        model.proceed.set()
        assert client.post("/translate", json={"text": "one"}).status_code == 200
        assert client.get("/health").json()["status"] == "ok"


def test_metrics_count_requests_texts_tokens_and_batches(client):
    client.post("/translate", json={"text": ["one", "three"]})
    client.post("/translate", json={"text": "a" * 21})
    samples = {}
    for line in client.get("/metrics").text.splitlines():
        if line[0] != "#":
            name, value = line.rsplit(" ", 1)
            samples[name.replace('model="default"', "")] = float(value)
    expected = {'requests_total{,status="200"}': 1, 'requests_total{,status="422"}': 1}
    expected |= {"texts{}": 2, "waiting{}": 0, "loaded{}": 1}
    expected |= {"batch_size_count{}": 1, "batch_size_sum{}": 2}
    expected |= {"queue_seconds_count{}": 2, "tokens_total{}": 8}  # a byte is a token
    assert {name: samples[name] for name in expected} == expected
    assert 0 < samples["queue_seconds_sum{}"] < 10


def test_create_service_has_metrics_and_docs_by_choice():
    paths = ("/metrics", "/docs", "/openapi.json", "/redoc")
    with serving() as client:
        assert [client.get(path).status_code for path in paths] == [404] * 4
    with serving(metrics=True, docs=True) as client:
        assert [client.get(path).status_code for path in paths] == [200, 200, 200, 404]
        assert "num_return_sequences" in client.get("/openapi.json").text
        assert "/openapi.json" in client.get("/docs").text


# --- Keys and the queue ---------------------------------------------------------------------------

REFUSED_KEYS = (
    "",
    "first",
    "Bearer",
    "Bearer ",
    "Bearer other",
    "Bearer firs",
    "Basic first",
    "Bearer é",
    b"Bearer \xff",
)


def test_create_service_requires_one_of_its_api_keys():
    with serving(api_keys=["first", "schlüssel", "鍵"], metrics=True) as client:
        statuses = dict.fromkeys(REFUSED_KEYS, 401)
        statuses |= dict.fromkeys(("Bearer first", "bearer schlüssel", "Bearer 鍵"), 200)
        for header, status in statuses.items():
            sent = header if isinstance(header, bytes) else header.encode()
            headers = {"Authorization": sent}
            answer = client.post("/translate", json={"text": "one"}, headers=headers)
            assert answer.status_code == status, header
        assert client.get("/metrics").status_code == 401
        assert client.get("/health").status_code == 200
        headers = {"Authorization": "Bearer first"}
        assert client.get("/metrics", headers=headers).status_code == 200


# --- Pages of other origins, which use the service in a browser if its owner says so --------------

ORIGIN, OTHER = "https://reader.example", "https://other.example"
ALLOWED = "access-control-allow-origin"
ASKED = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


def translate_from(client, origin, text="a", **headers):
    entries = {"q": text, "source": "en", "target": "de"}
    return client.post("/translate", json=entries, headers={"origin": origin} | headers)


def test_cors_allows_no_other_page_by_default():
    with serving() as client:
        assert ALLOWED not in translate_from(client, ORIGIN).headers
        headers = {"origin": ORIGIN, **ASKED}
        assert client.options("/translate", headers=headers).status_code == 405
    with serving(cors=["*"]) as client:
        assert translate_from(client, OTHER).headers[ALLOWED] == "*"


def test_cors_answers_a_browser_without_a_key_and_keeps_keys_and_limits():
    limits, key = Limits(max_body_bytes=100), {"authorization": "Bearer key"}
    paths = ("/translate", "/translate_file", "/languages", "/frontend/settings")
    with serving(limits=limits, cors=[ORIGIN], api_keys=["key"]) as client:
        for path in paths:
            answer = client.options(path, headers={"origin": ORIGIN, **ASKED})
            assert answer.status_code == 200
            assert answer.headers[ALLOWED] == ORIGIN
            headers = answer.headers["access-control-allow-headers"].split(", ")
            assert {"Authorization", "Content-Type"} <= {*headers}
            assert "access-control-allow-credentials" not in answer.headers
            answer = client.options(path, headers={"origin": OTHER, **ASKED})
            assert answer.status_code == 400
            assert ALLOWED not in answer.headers
        answers = {
            403: translate_from(client, ORIGIN),
            200: translate_from(client, ORIGIN, **key),
            413: translate_from(client, ORIGIN, "a" * 200, **key),
            404: client.get("/nothing", headers={"origin": ORIGIN}),
        }
        for status, answer in answers.items():
            assert (answer.status_code, answer.headers[ALLOWED]) == (status, ORIGIN)
        assert ALLOWED not in translate_from(client, OTHER, **key).headers


def test_count_tokens_with_counts_as_the_tokenizer(tiny_tokenizer):
    texts = ["A man is sleeping.", "\U0001f642" * 5, ""]
    counts = [len(ids) for ids in tiny_tokenizer(texts)["input_ids"]]
    assert count_tokens_with(tiny_tokenizer)(texts) == counts


# --- The command ----------------------------------------------------------------------------------


def test_serve_answers_and_stops_on_sigterm(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = Forked(["-m", "vanilla_transformer", "serve", folder, "--port", port])
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.2)
        body = json.dumps({"text": "A man is sleeping."}).encode()
        address = f"http://127.0.0.1:{port}/translate"
        answer = json.load(urllib.request.urlopen(address, body, timeout=30))
        translate = TranslationPipeline(tiny_model, tiny_tokenizer, task="translation")
        (expected,) = translate("A man is sleeping.")
        assert answer["translations"] == [[expected["translation_text"]]]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
        assert "Traceback" not in process.communicate()[1]
    finally:
        process.kill()
