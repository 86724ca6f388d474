"""The page of the service: one file with all that its script needs to know."""

import base64
import hashlib
import json
import re
from functools import partial

import pytest
from fastapi.testclient import TestClient

from vanilla_transformer.extensions.serving.commands import ServeArguments
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.models import Models, ServedModel
from vanilla_transformer.extensions.serving.page import add_page
from vanilla_transformer.extensions.serving.service import create_service, create_service_of
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.translation_warnings import WARNINGS, WarningLimits, find_warnings


def shout(texts, options, format):
    return [shout_often(text, options.count) for text in texts]


def shout_often(text, count):
    """Return different translations of a text."""
    return [f"{text.upper()} {rank}" for rank in range(count)]


def get_page(limits=None, title="A model", api_keys=(), known=(), **options):
    """Return the text of the page of a service of one model."""
    service = create_service(shout, limits, api_keys=api_keys, known=known)
    return page_of(service, title, **options)


def page_of(service, title="A model", **options):
    with TestClient(add_page(service, title, **options)) as client:
        answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def settings_of(page):
    """Return what the script of the page reads."""
    pattern = r'<script id="data" type="application/json">(.*?)</script>'
    (data,) = re.findall(pattern, page, re.DOTALL)
    return json.loads(data)


def test_add_page_keeps_the_service():
    with TestClient(add_page(create_service(shout, docs=True), "A model")) as client:
        answer = client.post("/translate", json={"text": "one"})
        assert answer.json() == {"translations": [["ONE 0"]]}
        assert "/" not in client.get("/openapi.json").json()["paths"]


def test_page_loads_nothing_and_runs_its_own_script_only():
    page = get_page()
    addresses = r"""(?:src|href|action)=["'](?!data:)|url\(|@import|https?:"""
    assert not re.findall(addresses, page)
    pattern = r'http-equiv="Content-Security-Policy" content="([^"]*)"'
    policy = re.search(pattern, page)[1]
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_page_names_the_model_as_text():
    page = get_page(title="</title><b>&", directions=[Direction("</script>", "de")])
    assert "<h1>&lt;/title&gt;&lt;b&gt;&amp;</h1>" in page
    assert page.count("</script>") == 2
    assert settings_of(page)["sources"] == ["</script>"]


def test_page_knows_the_limits_and_no_other_settings_of_the_service():
    options = {"max_characters": 7, "max_hypotheses": 2, "api_key_file": "secret.txt"}
    settings = settings_of(get_page(ServeArguments(**options)))
    assert settings["limits"] == {
        "max_texts": 256,
        "max_characters": 7,
        "max_tokens": 1024,
        "max_body_bytes": 1_000_000,
        "max_document_bytes": 10_000_000,
    }
    assert settings["num_hypotheses"] == 2
    assert "secret" not in json.dumps(settings)
    assert settings_of(get_page(Limits()))["num_hypotheses"] == 4


def test_page_shows_what_the_model_can_return():
    settings = settings_of(get_page(known=["return_scores", "format", "seed"]))
    assert settings["features"] == ["return_scores", "format", "seed"]
    assert settings["endings"][".md"] == "markdown"
    settings = settings_of(get_page(known=["return_scores", "return_alignments"]))
    assert settings["features"] == ["return_scores", "return_alignments"]
    assert settings["endings"] == {}
    assert settings["models"] == {}


def test_page_says_what_each_warning_means():
    settings = settings_of(get_page())
    assert "return_warnings" in settings["options"]
    assert settings["warnings"] == WARNINGS
    for pair in (("1 2", "3"), ("a", "a" * 99), ("a b", "c c c c")):
        names = warnings_of(*pair)
        assert names
        assert {*names} <= {*settings["warnings"]}


def warnings_of(source, translation):
    return find_warnings(source, translation, WarningLimits())


@pytest.mark.parametrize("names", [["one", "two"], ["one"]])
def test_page_knows_the_model_of_each_direction(names):
    directions = [Direction("en", "de"), Direction("en", "fr")][: len(names)]
    limits = Limits(max_characters=7)
    models = []
    for name, direction in zip(names, directions, strict=True):
        load = partial(pytest.fail, "no request needs a model")
        models.append(ServedModel(name, limits, load, directions=[direction]))
    service = create_service_of(Models(models), limits)
    settings = settings_of(page_of(service, directions=directions))
    assert settings["models"] == dict(zip(map(str, directions), names, strict=True))
    assert settings["features"] is None
    assert settings["endings"]
    assert settings["limits"]["max_characters"] == 7


def test_page_asks_for_a_key_if_the_service_does():
    page = get_page(api_keys=["a-secret-key"])
    assert settings_of(page)["needs_key"] and "a-secret-key" not in page
    assert not settings_of(get_page())["needs_key"]


@pytest.mark.parametrize(
    ("directions", "sources", "targets", "targets_of"),
    [
        ([], [], [], {}),
        ([Direction("en", "de")], ["en"], ["de"], {}),
        ([Direction(None, "de"), Direction(None, "fr")], [""], ["de", "fr"], {}),
        ([Direction("en", "de"), Direction("de", "en")], ["en", "de"], ["de", "en"], {}),
        ([Direction("en", "de"), Direction("fr", "de"), Direction("en", "fr")], ["en", "fr"], ["de", "fr"], {}),
        ([Direction("en", "de"), Direction("fr", "de"), Direction("en", "it")], ["en", "fr"], ["de", "it"],
         {"fr": ["de"]}),
    ],
)  # fmt: skip
def test_page_knows_the_targets_of_each_source(directions, sources, targets, targets_of):
    settings = settings_of(get_page(directions=directions, default={"tgt_lang": "fr"}))
    assert settings["sources"] == sources
    assert settings["targets"] == targets
    assert settings["targets_of"] == targets_of
    names = {"en": "English", "de": "German", "fr": "French", "it": "Italian"}
    codes = {*sources, *targets} - {""}
    assert settings["names"] == {code: names[code] for code in codes}
    assert settings["default"] == {"tgt_lang": "fr"}
