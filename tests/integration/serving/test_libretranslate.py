"""The service answers requests in the form of LibreTranslate."""

import json
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from tests.service_answers import TEXTS
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli.serve import find_directions
from vanilla_transformer.serving.language_names import language_name
from vanilla_transformer.serving.service import create_service, translate_with
from vanilla_transformer.text.languages import Direction

DIRECTIONS = [Direction("en", "de"), Direction("en", "fr"), Direction("de", "en")]
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def translate(tiny_model, tiny_tokenizer):
    return TranslationPipeline(tiny_model, tiny_tokenizer)


@pytest.fixture
def client(translate):
    with TestClient(create_service(translate_with(translate), directions=DIRECTIONS[:1])) as client:
        yield client


def ask(client, **entries):
    return client.post("/translate", json={"q": TEXTS, "source": "en", "target": "de"} | entries)


def test_libretranslate_answers_like_the_pipeline(client, translate):
    expected = [answer["translation_text"] for answer in translate(TEXTS)]
    assert ask(client).json() == {"translatedText": expected}
    assert ask(client, q=TEXTS[0], source="auto", format="text").json() == {"translatedText": expected[0]}


def test_libretranslate_accepts_forms(client, translate):
    # As `libretranslatepy` sends them.
    body = urlencode({"q": TEXTS[0], "source": "en", "target": "de", "api_key": "unused"})
    expected = translate(TEXTS[0])[0]["translation_text"]
    assert client.post("/translate", content=body, headers=FORM).json() == {"translatedText": expected}
    several = urlencode([("q", TEXTS[0]), ("q", TEXTS[1]), ("source", "en"), ("target", "de")])
    assert client.post("/translate", content=several, headers=FORM).json()["translatedText"][0] == expected


def test_libretranslate_forms_are_no_json(client, translate):
    # As `curl -d` sends JSON: a text with `&q=` in it is no form.
    text = "A man & a dog.&q=Grass."
    answer = client.post("/translate", content=json.dumps({"text": text}), headers=FORM)
    assert answer.json() == {"translations": [[translate(text)[0]["translation_text"]]]}
    answer = client.post("/translate", content=json.dumps({"q": text, "source": "en", "target": "de"}), headers=FORM)
    assert answer.json() == {"translatedText": translate(text)[0]["translation_text"]}


def test_libretranslate_returns_alternatives(client, translate):
    best, *others = (row["translation_text"] for row in translate([TEXTS[0]], num_return_sequences=3)[0])
    assert ask(client, q=TEXTS[0], alternatives="2").json() == {"translatedText": best, "alternatives": others}
    assert ask(client, q=[TEXTS[0]], alternatives=2).json() == {"translatedText": [best], "alternatives": [others]}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"source": "fr"}, "`source` and `target` must be a direction of this service: en-de."),
        ({"target": None}, "`source` and `target` must be given"),
        ({"alternatives": -1}, "`alternatives` must be a number of 0 or more."),
        ({"alternatives": 99}, "at most"),
        ({"q": [1]}, "text"),
        ({"q": {}}, "text"),
        ({"format": "html"}, "translates no documents"),
    ],
)
def test_libretranslate_refuses_in_its_form(client, entries, message):
    answer = ask(client, **entries)
    assert answer.status_code == 400 and [*answer.json()] == ["error"] and message in answer.json()["error"]


def test_libretranslate_key_may_be_in_the_body(translate):
    with TestClient(create_service(translate_with(translate), api_keys=["first"])) as client:
        assert ask(client).status_code == ask(client, api_key="other").status_code == 403
        assert "translatedText" in ask(client, api_key="first").json()
        assert client.post("/translate", json={"text": "a", "api_key": "first"}).status_code == 401


def test_libretranslate_lists_languages(translate):
    with TestClient(create_service(translate_with(translate), directions=DIRECTIONS)) as client:
        assert client.get("/languages").json() == [
            {"code": "en", "name": "English", "targets": ["de", "fr"]},
            {"code": "de", "name": "German", "targets": ["en"]},
        ]
        assert "detects no languages" not in ask(client, source="auto", target="fr").text
        assert "`src_lang`" in ask(client, target="fr").json()["error"]  # which this model does not know


def test_find_directions_reads_the_flag(tiny_tokenizer):
    assert find_directions(tiny_tokenizer, "en-de") == [Direction("en", "de")]
    assert find_directions(tiny_tokenizer, None) == []
    with pytest.raises(ValueError, match="`direction` must be the codes of two languages"):
        find_directions(tiny_tokenizer, "english")


@pytest.mark.parametrize(
    ("code", "name"), [("pt-BR", "Portuguese (Brazil)"), ("deu_Latn", "German"), ("xx", "xx"), ("!", "!"), ("", "")]
)
def test_language_name_is_english_or_the_code(code, name):
    assert language_name(code) == name
