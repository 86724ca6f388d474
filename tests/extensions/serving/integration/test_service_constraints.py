"""Requests with constraints: translations contain them, and a request that no translation meets has status 422."""

import pytest

from tests.service_answers import TEXTS, post
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.serving.schema import ENTRIES


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=20)


@pytest.mark.parametrize("constraints", [["Hunde", "Mann"], [["Hunde"], [], ["grüne Gras"]]])
def test_service_translates_under_constraints_like_the_pipeline(translate, constraints):
    answer = post(translate, constraints=constraints)
    expected = translate(TEXTS, constraints=constraints)
    assert answer.json() == {"translations": [[each["translation_text"]] for each in expected]}


def test_service_takes_no_constraints_as_none(translate):
    plain = [[each["translation_text"]] for each in translate(TEXTS)]
    for nothing in (None, [], [[], [], []]):
        assert post(translate, constraints=nothing).json() == {"translations": plain}


@pytest.mark.parametrize(
    ("body", "known", "message"),
    [
        ({"constraints": [["a"], 3, []]}, ENTRIES, "or a list of phrases for each text, got 3 for a text."),
        ({"constraints": ["a"]}, ["do_sample"], "has no beam search with constraints. Leave `constraints` out."),
        ({"constraints": ["a"], "do_sample": True}, ENTRIES, "`constraints` need beam search. Leave `do_sample` out."),
        ({"constraints": ["a"], "format": "html"}, ENTRIES, "With `format` there is one translation."),
        ({"constraints": ["Hunde " * 10]}, ENTRIES, "A translation may have 20 tokens, but its constraints have"),
        ({"text": "a\nb", "constraints": ["a"]}, ENTRIES, "A text with constraints must be one line or sentence"),
    ],
)
def test_service_refuses_constraints_that_no_translation_meets(translate, body, known, message):
    answer = post(translate, known, **body)
    assert answer.status_code == 422 and message in answer.json()["detail"]
