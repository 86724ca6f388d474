"""The service of a model with several languages."""

import copy

import pytest
from fastapi.testclient import TestClient

from tests.tiny import tiny_model
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.text.languages import Direction, add_language_tags

TEXT = "A man is sleeping."


@pytest.fixture(scope="module")
def pipeline(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("en", "fr")])
    return TranslationPipeline(tiny_model(vocab_size=len(tokenizer)), tokenizer)


def client(pipeline, **languages):
    known = known_options(pipeline)
    return TestClient(create_service(translate_with(pipeline, languages=languages), known=known))


def test_service_translates_into_the_language_of_a_request(pipeline):
    expected = {code: pipeline(TEXT, tgt_lang=code)[0]["translation_text"] for code in ("de", "fr")}
    with client(pipeline) as one, client(pipeline, tgt_lang="fr") as other:
        for code, text in expected.items():
            for service in (one, other):
                answer = service.post("/translate", json={"text": TEXT, "tgt_lang": code, "src_lang": "en"})
                assert answer.json() == {"translations": [[text]]}
        assert other.post("/translate", json={"text": TEXT}).json() == {"translations": [[expected["fr"]]]}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "The target language must be one of de, fr; got none."),
        ({"tgt_lang": "it"}, "The target language must be one of de, fr; got 'it'."),
        ({"tgt_lang": "de", "src_lang": "fr"}, "The source language must be one of en; got 'fr'."),
        ({"tgt_lang": "d" * 41}, f"`tgt_lang` must be the code of a language, got '{'d' * 41}'."),
    ],
)
def test_service_lists_the_languages_and_stays_healthy(pipeline, entries, message):
    with client(pipeline) as service:
        answer = service.post("/translate", json={"text": TEXT} | entries)
        assert (answer.status_code, answer.json()) == (422, {"detail": message})
        assert service.get("/health").json()["status"] == "ok"


def test_service_checks_a_failed_model_in_the_language_of_the_request():
    calls = []

    def translate(texts, hypotheses, tgt_lang=None):
        calls.append((texts, tgt_lang))
        if "break" in texts:
            raise RuntimeError
        return [["x"] * hypotheses for _ in texts]

    with TestClient(create_service(translate, known=["tgt_lang"])) as service:
        assert service.post("/translate", json={"text": "break", "tgt_lang": "de"}).status_code == 500
        assert calls == [(["break"], "de"), (["1"], "de")] and service.get("/health").json()["status"] == "ok"
