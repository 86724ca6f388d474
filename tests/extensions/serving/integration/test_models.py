"""A service of several models, which are loaded when requests need them."""

import asyncio
import logging
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from fastapi.testclient import TestClient

from tests.processes import wait_until
from tests.services import shout
from vanilla_transformer import __version__
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.models import (
    LoadedModel,
    ModelLoader,
    Models,
    ServedModel,
)
from vanilla_transformer.extensions.serving.service import create_service, create_service_of
from vanilla_transformer.text.languages import Direction

NAMES = ("en-de", "de-en", "en-fr")
POOL = ThreadPoolExecutor(8)  # for requests in the background
KNOWN = "`model` must be one of the models of this service: en-de, de-en, en-fr."


class Model:
    """A model whose translations begin with its name, and which waits in `break` and `wait`."""

    def __init__(self, name):
        self.name, self.proceed = name, threading.Event()

    def __call__(self, texts, options, format):
        if "wait" in texts:
            self.proceed.wait(10)
        if "break" in texts:
            raise RuntimeError
        return [[f"{self.name} {text}"] * options.count for text in texts]


class Shelf:
    """Loads models, and remembers which ones."""

    def __init__(self, **failing):
        self.loaded, self.models, self.proceed = [], {}, threading.Event()
        self.failing = {name.replace("_", "-"): error for name, error in failing.items()}
        self.proceed.set()

    def load(self, name):
        self.proceed.wait(10)
        self.loaded.append(name)
        if name in self.failing:
            raise self.failing[name]
        model = Model(name)
        self.models[name] = weakref.ref(model)
        known = ["return_scores"] if name == "en-fr" else ()
        return LoadedModel(model, lambda texts: [1] * len(texts), known)


@contextmanager
def serving(shelf, names=NAMES, max_loaded=None, limits=None, **options):
    limits, loader = limits or Limits(), ModelLoader(max_loaded)
    models = []
    for name in names:
        load, directions = partial(shelf.load, name), [Direction(*name.split("-"))]
        models.append(ServedModel(name, limits, load, None, directions, loader))
    service = create_service_of(Models(models), limits, **options)
    with TestClient(service) as client:
        yield client


def ask(client, name, text="a", **entries):
    return client.post("/translate", json={"text": text, "model": name} | entries)


def ask_question(client, source, target, text="a"):
    body = {"q": text, "source": source, "target": target}
    return client.post("/translate", json=body)


def models_of(client):
    return [*client.app.state.models]


def states(client):
    models = client.get("/health").json()["models"]
    return {name: state["status"] for name, state in models.items()}


def test_models_are_loaded_when_a_request_needs_them():
    shelf = Shelf()
    with serving(shelf) as client:
        assert shelf.loaded == []
        assert set(states(client).values()) == {"not loaded"}
        for _ in range(2):
            assert ask(client, "de-en").json() == {"translations": [["de-en a"]]}
        assert shelf.loaded == ["de-en"]
        assert states(client)["de-en"] == "ok"
        events = ask(client, "en-de", stream=True).text
        assert events == 'data: {"position": 0, "translations": ["en-de a"]}\n\n'
        assert shelf.loaded == ["de-en", "en-de"]
        well = {"failures": 0, "last_failure": None}
        health = client.get("/health").json()
        models = health.pop("models")
        assert health == {"status": "ok", "version": __version__} | well
        assert [*models] == [*NAMES]
        for model, status in zip(models.values(), ("ok", "ok", "not loaded"), strict=True):
            assert model == {"status": status, "sha256": None} | well


def test_models_are_chosen_by_the_languages_of_libretranslate():
    with serving(Shelf()) as client:
        for name in NAMES:
            answer = ask_question(client, *name.split("-")).json()
            assert answer == {"translatedText": f"{name} a"}
        answer = ask_question(client, "auto", "fr").json()
        assert answer == {"translatedText": "en-fr a"}
        english, german, french = client.get("/languages").json()
        assert english == {"code": "en", "name": "English", "targets": ["de", "fr"]}
        assert german == {"code": "de", "name": "German", "targets": ["en"]}
        assert french == {"code": "fr", "name": "French", "targets": []}


@pytest.mark.parametrize("name", [None, "fr-en", "", 3, ["en-de"]])
def test_unknown_models_are_refused_with_the_known_ones(name):
    shelf = Shelf()
    with serving(shelf) as client:
        answer = ask(client, name)
        assert (answer.status_code, answer.json()) == (422, {"detail": KNOWN})
        said = "`source` and `target` must be a direction of this service: en-de, de-en, en-fr."
        assert ask_question(client, "fr", "en").json() == {"error": said}
        assert shelf.loaded == []


def test_the_only_model_needs_no_name():
    with serving(Shelf(), ["en-de"]) as client:
        answer = client.post("/translate", json={"text": "a"}).json()
        assert answer == {"translations": [["en-de a"]]}
        assert ask(client, "en-de").status_code == 200
        assert ask(client, "de-en").status_code == 422
        assert "models" not in client.get("/health").json()
    with TestClient(create_service(Model("x"), name="x")) as client:
        assert ask(client, "x").status_code == 200
        assert ask(client, "y").status_code == 422


ERRORS = [OSError("/secret is missing"), SystemExit("/secret")]


@pytest.mark.parametrize("error", ERRORS)
def test_a_model_that_cannot_be_loaded_fails_alone(error, caplog):
    shelf, kind = Shelf(en_de=error), type(error).__name__
    with serving(shelf) as client:
        reason = "The log of the service has the reason."
        said = f"The model en-de cannot be loaded ({kind}). {reason}"
        for answer, form in (
            (ask(client, "en-de"), "detail"),
            (ask_question(client, "en", "de"), "error"),
            (client.get("/models/en-de"), "detail"),
        ):
            assert (answer.status_code, answer.json()) == (500, {form: said})
            assert "/secret" in caplog.text
        assert ask(client, "de-en").status_code == 200
        health = client.get("/health")
        assert health.status_code == 200
        assert health.json()["models"]["en-de"] == {
            "status": "not loaded",
            "failures": 0,
            "last_failure": kind,
            "sha256": None,
        }
        shelf.failing.clear()
        assert ask(client, "en-de").status_code == 200


def test_a_model_describes_itself_to_clients_with_a_key():
    shelf = Shelf()
    with serving(shelf, max_loaded=1, api_keys=["key"]) as client:
        assert client.get("/models/en-de").status_code == 401
        assert shelf.loaded == []
        client.headers["authorization"] = "Bearer key"
        answer = client.get("/models/en-fr").json()
        assert answer == {"name": "en-fr", "features": ["return_scores"]}
        assert client.get("/models/en-de").json() == {"name": "en-de", "features": []}
        assert shelf.loaded == ["en-fr", "en-de"]
        assert states(client)["en-fr"] == "not loaded"
        missing = client.get("/models/fr-en")
        assert (missing.status_code, missing.json()) == (404, {"detail": KNOWN})
        assert ask(client, "en-fr", return_scores=True).status_code == 200
        refused = ask(client, "en-de", return_scores=True)
        assert "Leave `return_scores` out" in refused.json()["detail"]


# --- Loading --------------------------------------------------------------------------------------


def test_models_are_loaded_one_at_a_time():
    loader, loading, most = ModelLoader(), [], []

    def load():
        loading.append(1)
        most.append(len(loading))
        time.sleep(0.05)
        loading.pop()

    async def load_three():
        await asyncio.gather(*(loader.load(None, load) for _ in range(3)))

    asyncio.run(load_three())
    assert most == [1, 1, 1]


def test_other_models_translate_while_one_is_loaded():
    shelf = Shelf()
    with serving(shelf) as client:
        assert ask(client, "de-en").status_code == 200
        shelf.proceed.clear()
        started = [POOL.submit(ask, client, "en-de") for _ in range(3)]
        wait_until(lambda: states(client)["en-de"] == "loading")
        assert ask(client, "de-en").status_code == 200
        shelf.proceed.set()
        for request in started:
            assert request.result().json() == {"translations": [["en-de a"]]}
        assert shelf.loaded == ["de-en", "en-de"]


def test_a_request_waits_for_loading_within_its_time():
    shelf = Shelf()
    shelf.proceed.clear()
    with serving(shelf, limits=Limits(request_seconds=1)) as client:
        answer = ask(client, "en-de")
        assert answer.status_code == 503
        assert "The model en-de is still loading" in answer.json()["detail"]
        shelf.proceed.set()
        assert ask(client, "en-de").status_code == 200
        assert shelf.loaded == ["en-de"]


def test_stopping_refuses_requests_that_wait_for_a_model():
    shelf = Shelf()
    shelf.proceed.clear()
    with serving(shelf) as client:
        waiting = POOL.submit(ask, client, "en-de")
        models = client.app.state.models
        wait_until(lambda: states(client)["en-de"] == "loading")
        wait_until(lambda: models.is_busy)
        client.portal.call(models.stop)
        assert waiting.result().status_code == 503
        assert "shutting down" in waiting.result().json()["detail"]
        assert models.is_busy  # the thread cannot be stopped
        shelf.proceed.set()
        wait_until(lambda: not models.is_busy)


def test_max_loaded_unloads_the_least_recently_used_model():
    shelf = Shelf()
    with serving(shelf, max_loaded=2) as client:
        for name in ("en-de", "de-en", "en-de", "en-fr"):
            assert ask(client, name).json() == {"translations": [[f"{name} a"]]}
        assert states(client) == {"en-de": "ok", "de-en": "not loaded", "en-fr": "ok"}
        assert shelf.models["de-en"]() is None
        assert shelf.models["en-de"]() is not None
        assert ask(client, "de-en").status_code == 200
        assert states(client)["en-de"] == "not loaded"
        assert shelf.loaded == ["en-de", "de-en", "en-fr", "de-en"]


def test_max_loaded_keeps_a_model_that_is_at_work():
    shelf = Shelf()
    with serving(shelf, max_loaded=1) as client:
        waiting = POOL.submit(ask, client, "en-de", "wait")
        wait_until(lambda: client.app.state.models.is_busy and "en-de" in shelf.models)
        wait_until(lambda: states(client)["en-de"] == "ok")
        answer = ask(client, "de-en")
        assert answer.status_code == 429
        assert "no room for more" in answer.json()["detail"]
        shelf.models["en-de"]().proceed.set()
        assert waiting.result().json() == {"translations": [["en-de wait"]]}
        assert ask(client, "de-en").status_code == 200


# --- Limits, metrics and failures -----------------------------------------------------------------


def test_limits_hold_for_each_model():
    shelf = Shelf()
    limits = Limits(max_waiting=1, max_batch_size=1)
    with serving(shelf, limits=limits, metrics=True) as client:
        for name in ("en-de", "de-en"):
            assert ask(client, name).status_code == 200
        started = [POOL.submit(ask, client, "en-de", "wait")]
        wait_until(lambda: client.app.state.models.is_busy)
        started.append(POOL.submit(ask, client, "en-de"))
        wait_until(lambda: 'waiting{model="en-de"} 1.0' in client.get("/metrics").text)
        refused = ask(client, "en-de")
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        # This one waits for the thread, not for room in the queue.
        started.append(POOL.submit(ask, client, "de-en"))
        shelf.models["en-de"]().proceed.set()
        for request in started:
            assert request.result().status_code == 200


def test_metrics_of_models_tell_which_decode_by_compiled_steps():
    compiled = []
    options = {"is_compiled": lambda: bool(compiled)}
    loaded = LoadedModel(shout, lambda texts: [1] * len(texts), **options)
    models = [ServedModel("one", Limits(), loaded=loaded)]
    models.append(ServedModel("two", Limits(), load=lambda: loaded))
    with TestClient(create_service_of(Models(models), metrics=True)) as client:
        assert 'compiled{model="one"} 0.0' in client.get("/metrics").text
        compiled.append("steps")
        assert [ask(client, name).status_code for name in ("one", "x")] == [200, 422]
        lines = client.get("/metrics").text.splitlines()
    for name, *values in (("loaded", 1, 0), ("texts", 1, 0), ("compiled", 1, 0)):
        for model, value in zip(("one", "two"), values, strict=True):
            assert f'{name}{{model="{model}"}} {value}.0' in lines
    assert 'requests_total{model="one",status="200"} 1.0' in lines
    assert 'requests_total{model="",status="422"} 1.0' in lines
    assert 'tokens_total{model="one"} 1.0' in lines


def test_a_broken_model_breaks_the_service():
    def fail(texts, options, format):
        raise RuntimeError

    shelf = Shelf()
    shelf.load = lambda name: LoadedModel(fail)
    with serving(shelf) as client:
        assert not models_of(client)[0].batcher.broken
        assert ask(client, "en-de").status_code == 500
        health = client.get("/health")
        assert health.status_code == 503
        assert health.json()["status"] == "broken"
        others = {"de-en": "not loaded", "en-fr": "not loaded"}
        assert states(client) == {"en-de": "broken"} | others
        assert models_of(client)[0].batcher.last_failure == "RuntimeError"


# --- Loading again --------------------------------------------------------------------------------

TEXTS = ["Two dogs run.", "A man buys 3 apples.", "Where is the old house?"]
# New model → words of the log.
NEW_MODELS = {
    "other words": (lambda text: f"neu {text[::-1]}", "was replaced: of 3 answers, 0"),
    "copies": (lambda text: text, "stays as it is: of 3 answers, 3"),
    "nothing": (lambda text: " ", "stays as it is: of 3 answers, 3"),
    "repeats": (lambda text: "viele viele viele Hunde 3"[:24], "stays as it is: of 3 answers, 3"),
    "other numbers": (
        lambda text: text[::-1].replace("3", "47"),
        "stays as it is: of 3 answers, 1",
    ),
    "fails": (lambda text: text[99], "stays as it is: IndexError"),
}


@pytest.fixture
def log():
    """Return the lines of uvicorn's log."""
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("uvicorn.error").addHandler(handler)
    yield lines
    logging.getLogger("uvicorn.error").removeHandler(handler)


def loaded(answer, known=()):
    def translate(texts, options, format):
        return [[answer(text)] * options.count for text in texts]

    return LoadedModel(translate, lambda texts: [1] * len(texts), known)


@pytest.mark.parametrize("kind", NEW_MODELS)
def test_a_new_model_replaces_the_old_one_unless_it_is_worse(kind, log):
    answer, said = NEW_MODELS[kind]
    old = loaded(lambda text: f"alt {text[::-1]}")
    model = ServedModel("en-de", Limits(), lambda: loaded(answer, ["return_scores"]), old)
    with TestClient(create_service_of(Models([model]))) as client:
        for text in TEXTS:
            assert ask(client, "en-de", text).status_code == 200
        client.portal.call(model.reload)
        (line,) = log
        assert line.startswith(f"The model en-de {said}")
        is_new = "replaced" in said
        expected = answer(TEXTS[0]) if is_new else f"alt {TEXTS[0][::-1]}"
        assert ask(client, "en-de", TEXTS[0]).json() == {"translations": [[expected]]}
        assert [*model.known] == ["return_scores"] * is_new


def test_a_new_model_is_compared_on_the_last_texts_without_options():
    asked = []

    def answer(text):
        asked.append(text)
        return text.upper()

    model = ServedModel("en-de", Limits(), lambda: loaded(answer), loaded(str.upper, ["format"]))
    with TestClient(create_service_of(Models([model]))) as client:
        for number in range(30):
            assert ask(client, "en-de", f"text {number}").status_code == 200
        for entries in ({"num_return_sequences": 2}, {"num_beams": 2}):
            assert ask(client, "en-de", "with options", **entries).status_code in (200, 422)
        assert ask(client, "en-de", "text 15").status_code == 200
        client.portal.call(model.reload)
    assert sorted(asked) == sorted(f"text {number}" for number in range(10, 30))


def test_requests_are_answered_while_a_new_model_is_loaded(log):
    proceed = threading.Event()

    def load():
        proceed.wait(10)
        return loaded(lambda text: f"new {text}")

    model = ServedModel("en-de", Limits(), load, loaded(lambda text: f"old {text}"))
    with TestClient(create_service_of(Models([model]))) as client:
        reloading = POOL.submit(client.portal.call, model.reload)
        wait_until(lambda: model.loader.is_busy)
        assert ask(client, "en-de").json() == {"translations": [["old a"]]}
        waiting = [POOL.submit(ask, client, "en-de") for _ in range(4)]
        proceed.set()
        reloading.result()
        assert {request.result().status_code for request in waiting} == {200}
        assert ask(client, "en-de").json() == {"translations": [["new a"]]}


def test_a_model_is_loaded_again_although_as_many_as_may_be_are_in_memory(log):
    shelf = Shelf()
    with serving(shelf, max_loaded=1) as client:
        first, second, _ = models_of(client)
        assert ask(client, "en-de").status_code == 200
        for model in (first, second):
            client.portal.call(model.reload)
        assert shelf.loaded == ["en-de", "en-de"], "the second one is not in memory"
        assert ask(client, "de-en").status_code == 200
        assert states(client)["en-de"] == "not loaded"
