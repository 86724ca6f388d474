"""Requests with a glossary: soft terms if the model was trained for them, and hard ones."""

import pytest
from fastapi.testclient import TestClient

from tests.inline_terms import model_with_inline_terms
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.serving.features import SOFT_TERMS
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with

TERMS = {"man": "Mann"}


@pytest.fixture(scope="module")
def translate():
    return TranslationPipeline(*model_with_inline_terms(), device="cpu")


def post(translate, known, **body):
    with TestClient(create_service(translate_with(translate), known=known)) as client:
        return client.post("/translate", json={"text": ["A man.", "Two dogs."]} | body)


@pytest.mark.parametrize("mode", [{}, {"term_mode": "soft"}, {"term_mode": "hard"}, {"term_mode": "exact"}])
def test_service_uses_a_glossary_like_the_pipeline(translate, mode):
    answer = post(translate, [*ENTRIES, SOFT_TERMS], glossary=TERMS, **mode)
    expected = translate(["A man.", "Two dogs."], glossary=TERMS, **mode)
    assert answer.json() == {"translations": [[each["translation_text"]] for each in expected]}


def test_service_constrains_models_without_soft_terms():
    answer = post(TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu"), ENTRIES, glossary=TERMS)
    first, second = answer.json()["translations"]
    assert "Mann" in first[0] and "Mann" not in second[0]


@pytest.mark.parametrize(
    ("body", "known", "message"),
    [
        (
            {"glossary": TERMS, "term_mode": "soft"},
            ENTRIES,
            "was not trained with inline terms. Give",
        ),
        ({"glossary": TERMS}, ["do_sample"], "has no beam search with constraints"),
        ({"glossary": TERMS, "do_sample": True}, ENTRIES, "in the mode exact needs beam search"),
        ({"glossary": {"": "x"}}, ENTRIES, "The glossary must have a word in each source, got ''"),
        ({"glossary": {}}, ENTRIES, "The glossary must have a term with its translation, but it is empty"),
        ({"glossary": {"a": 1}}, ENTRIES, "must have pairs of a term and its translation"),
        ({"glossary": "terms.tsv"}, ENTRIES, "`glossary` must be an object of terms with their translations"),
    ],
)
def test_service_refuses_a_glossary_that_it_cannot_use(translate, body, known, message):
    answer = post(translate, known, **body)
    assert answer.status_code == 422 and message in answer.json()["detail"]
