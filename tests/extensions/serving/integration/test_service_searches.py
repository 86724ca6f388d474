"""Requests with target prefixes or alternatives, and wrong ones, which have status 422."""

import pytest

from tests.service_answers import TEXTS, post
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.serving.schema import ENTRIES


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=12)


@pytest.mark.parametrize(
    "options",
    [
        {"target_prefix": "Ein"},
        {"target_prefix": ["Ein", "", "Das Gras"]},
    ],
)
def test_service_searches_like_the_pipeline(translate, options):
    answer = post(translate, **options)
    assert answer.json() == {"translations": [[each["translation_text"]] for each in translate(TEXTS, **options)]}


def test_service_returns_alternatives(translate):
    answer = post(translate, target_prefix="Ein", alternatives=2)
    expected = translate(TEXTS, target_prefix="Ein", alternatives=2)
    assert answer.json() == {"translations": [[each["translation_text"] for each in row] for row in expected]}


@pytest.mark.parametrize(
    ("body", "known", "message"),
    [
        ({"target_prefix": ["a", 3, "b"]}, ENTRIES, "`target_prefix` must be a string, or one for each text, got 3."),
        ({"target_prefix": "a"}, ["do_sample"], "has no such search. Leave `target_prefix` out."),
        ({"target_prefix": "Hunde " * 20}, ENTRIES, "A target prefix must be shorter than the 12 tokens of the limit"),
        ({"target_prefix": "a", "format": "html"}, ENTRIES, "With `format` there is one translation."),
    ],
)
def test_service_refuses_wrong_searches(translate, body, known, message):
    answer = post(translate, known, **body)
    assert answer.status_code == 422 and message in answer.json()["detail"]
