"""The service stores suggestions of an API key, and gives them to later requests with that key."""

import os

import pytest
from fastapi.testclient import TestClient

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import DocumentTranslator
from vanilla_transformer.extensions.memory.memory import TranslationMemory, as_memory
from vanilla_transformer.extensions.memory.suggestions import Suggestions, find_faults
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.models import LoadedModel, Models, ServedModel
from vanilla_transformer.extensions.serving.service import (
    create_service,
    create_service_of,
    translate_with,
)
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.translation_warnings import WarningLimits

GERMAN = Direction("en", "de")
SOURCE, TARGET = "A man is sleeping.", "Ein Mann ruht."
GIVEN = {"q": SOURCE, "s": TARGET, "source": "en", "target": "de"}


def recall(texts, options, format):
    """Return what the memory of a request has, or the text."""
    rows = []
    for text in texts:
        match = options.memory and options.memory.find(text)
        rows.append([match.target if match else text] * options.count)
    return rows


class Client(TestClient):
    """A client with one of two keys."""

    def translate(self, key="one", text=SOURCE, **entries):
        answer = self.post("/translate", json={"text": text, **entries}, headers=authorize(key))
        return answer.json()["translations"][0][0]

    def suggest(self, key="one", **entries):
        return self.post("/suggest", json=GIVEN | {"api_key": key} | entries)

    def suggestions(self, key="one", **query):
        return self.get("/suggestions", params=query, headers=authorize(key))


def authorize(key):
    return {"authorization": f"Bearer {key}"}


def serving(folder, translate=recall, **options):
    """Return a client of a service for two keys."""
    options = {"api_keys": ["one", "two"], "directions": [GERMAN], **options}
    service = create_service(translate, suggestions=Suggestions(folder), **options)
    return Client(service, raise_server_exceptions=False)


def test_suggestion_is_used_by_the_next_request_of_its_key(tmp_path):
    with serving(tmp_path) as client:
        assert client.get("/frontend/settings").json()["suggestions"] is True
        assert client.translate() == SOURCE
        answer = client.suggest()
        assert (answer.status_code, answer.json()) == (
            200,
            {"success": True, "id": 1, "warnings": []},
        )
        assert client.translate() == client.translate(num_return_sequences=2) == TARGET
        asked = client.post("/translate", json=GIVEN | {"api_key": "one"}).json()
        assert asked == {"translatedText": TARGET}
        assert client.translate("two") == SOURCE
        assert client.suggest(s="Ein Mann schläft.").json()["id"] == 2
        assert client.translate() == "Ein Mann schläft."
        listed = client.suggestions().json()
        assert listed[0] == {"id": 1, **GIVEN, "warnings": []}
        assert [entry["id"] for entry in listed] == [1, 2]
        assert client.suggestions("two").json() == []
        assert client.suggestions("none").status_code == 401
        delete = client.delete("/suggestions/2", headers=authorize("two"))
        assert delete.status_code == 404
        assert client.delete("/suggestions/2", headers=authorize("one")).json() == {"success": True}
        assert client.translate() == TARGET
        assert client.suggest(s="Er ruht.").json()["id"] == 3
    for path in tmp_path.iterdir():
        assert "one" not in path.name


def test_suggestions_survive_a_killed_process(tmp_path, monkeypatch):
    with serving(tmp_path) as client:
        client.suggest()
        client.suggest(q="A dog.", s="Ein Hund.")
        client.delete("/suggestions/2", headers=authorize("one"))
    (path,) = tmp_path.iterdir()
    with path.open("ab") as file:  # of a process that was killed while it wrote
        file.write(b'{"id": 9, "q": "A c')
    for _ in range(2):
        with serving(tmp_path) as client:
            assert client.translate() == TARGET
            assert client.translate(text="A dog.") == "A dog."
            assert client.suggest(q="A cat.", s="Eine Katze.").status_code == 200
            assert client.translate(text="A cat.") == "Eine Katze."
    ids = [entry["id"] for entry in Suggestions(tmp_path).log("one").entries.values()]
    assert ids == [1, 3, 4]
    path.write_text("{}\n")
    with pytest.raises(
        UserError, match=f"Line 1 of {path} must be a suggestion, but it is damaged"
    ):
        Suggestions(tmp_path).log("one")


def test_suggestion_that_is_not_on_the_disk_is_not_used(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with serving(tmp_path) as client:
        client.suggest()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            assert client.suggest(s="Er ruht.").status_code == 500
        assert client.translate() == TARGET
        assert client.suggest(q="A dog.", s="Ein Hund.").json()["id"] == 2
    assert len(Suggestions(tmp_path).log("one").entries) == 2


FAULTS = [
    ("Delete %s in 30 days.", "%s in 30 Tagen löschen.", []),
    ("Delete %s.", "Löschen.", ["placeholders"]),
    ("It costs 1,000.50 euros.", "Es kostet 1.000,50 Euro.", []),
    ("It costs 1000 euros.", "Es kostet 2000 Euro.", ["numbers"]),
    ("The old man sleeps here.", "The old man sleeps here.", ["copy"]),
    ("Hello", "Hallooooo", ["repetition"]),
    ("I live here.", "Я живу здесь.", ["script"]),
    ("Hello", "Hal\ufffdo", ["characters"]),
]


@pytest.mark.parametrize(("source", "target", "faults"), FAULTS)
def test_faulty_suggestions_are_found(source, target, faults):
    assert find_faults(source, target, WarningLimits(scripts=["LATIN"])) == faults


def test_faulty_suggestion_is_kept_aside(tmp_path):
    with serving(tmp_path) as client:
        answer = client.suggest(q="It costs 1000 euros.", s="Es kostet 2000 Euro.").json()
        assert answer == {"success": True, "id": 1, "warnings": ["numbers"]}
        assert client.translate(text="It costs 1000 euros.") == "It costs 1000 euros."
        assert client.suggestions().json()[0]["warnings"] == ["numbers"]
        assert "<tu>" not in client.suggestions(format="tmx").text


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"s": None}, "`q` and `s` must be two texts."),
        ({"q": ["a"]}, "`q` and `s` must be two texts."),
        ({"s": " "}, "`q` and `s` must not be blank."),
        ({"target": "fr"}, "`source` and `target` must be a direction of this service: en-de."),
        ({"s": "x" * 6}, "The characters of a text may be at most 5"),
    ],
)
def test_suggestions_are_checked(tmp_path, entries, reason):
    with serving(tmp_path, limits=Limits(max_characters=5)) as client:
        answer = client.suggest(**{"q": "A", "s": "B"} | entries)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(reason)
        assert client.suggest("three", q="A", s="B").status_code == 403
    assert not [*tmp_path.iterdir()]


def test_suggestions_have_a_limit(tmp_path):
    with serving(tmp_path, limits=Limits(max_suggestions=1)) as client:
        client.suggest()
        reason = (
            "There may be at most 1 suggestions of an API key (--max_suggestions). Delete some."
        )
        assert client.suggest().json() == {"error": reason}
        assert client.suggest("two").status_code == 200


def test_suggestions_may_be_a_form_and_need_no_keys(tmp_path):
    with serving(tmp_path, api_keys=[]) as client:
        assert client.post("/suggest", data=GIVEN).status_code == 200
        assert client.translate() == TARGET
        assert client.get("/suggestions").json()[0]["s"] == TARGET


def test_service_without_a_folder_takes_no_suggestions():
    with Client(create_service(recall, directions=[GERMAN])) as client:
        assert client.get("/frontend/settings").json()["suggestions"] is False
        assert client.suggest().status_code == 404


def test_suggestions_are_of_a_direction_and_above_the_memory_of_the_service(tmp_path):
    french = Direction("en", "fr")
    shared = TranslationMemory([(SOURCE, "Er schläft."), ("A dog.", "Ein Hund.")])
    models = []
    for direction, memory in ((GERMAN, shared), (french, None)):
        loaded = LoadedModel(recall, memory=memory)
        name = str(direction)
        models.append(ServedModel(name, Limits(), loaded=loaded, directions=[direction]))
    service = create_service_of(Models(models), suggestions=Suggestions(tmp_path))
    with Client(service) as client:
        assert client.translate(model="en-de") == "Er schläft."
        assert client.translate(model="en-fr") == SOURCE
        client.suggest()
        assert client.translate(model="en-de") == TARGET
        assert client.translate(model="en-de", text="A dog.") == "Ein Hund."
        assert client.translate(model="en-fr") == SOURCE


def test_suggestions_become_a_memory_by_tmx(tmp_path, capsys):
    with serving(tmp_path / "log") as client:
        (tmp_path / "log").mkdir()
        client.suggest(q="A & B", s="A <und> B\x01")
        client.suggest("two")
        answer = client.suggestions(format="tmx")
    (tmp_path / "one.tmx").write_bytes(answer.content)
    assert as_memory(tmp_path / "one.tmx", GERMAN).find("A & B").target == "A <und> B"
    output = str(tmp_path / "all.tmx")
    assert main(["export-memory", str(tmp_path / "log"), "--output", output]) == 0
    memory = as_memory(output, GERMAN)
    assert len(memory) == 2
    assert memory.find(SOURCE).target == TARGET
    assert main(["export-memory", str(tmp_path), "--output", f"{output}x"]) == 2
    assert "must be the folder of `serve --suggestions`" in capsys.readouterr().err


def test_pipeline_answers_by_suggestions(tmp_path):
    pipeline = TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")
    documents = DocumentTranslator(pipeline)
    translate = translate_with(pipeline, documents)
    known = ["format", "return_scores"]
    with serving(tmp_path, translate, documents=documents, known=known) as client:
        client.suggest()
        assert client.translate() == TARGET
        answer = client.translate(return_scores=True)
        assert answer == {"text": TARGET, "score": 0, "log_probability": 0, "memory": 1}
        assert client.translate(text=f"<p>{SOURCE}</p>", format="html") == f"<p>{TARGET}</p>"
        assert client.translate("two") != TARGET
