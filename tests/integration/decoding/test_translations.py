"""Scores and tokens in the answers of the pipeline: their values, their order, and requests without
them.
"""

import pytest
import torch

from tests.closeness import close_to
from tests.services import assert_service_returns_scores_like
from tests.tiny import tiny_long_model, tiny_model
from tests.translation import joined
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.decoding.token_texts import token_texts
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

TEXTS = ["A man is sleeping.", "Two dogs run across the green grass.", "A"]
TEXTS += ["", "a b\n\nc. d.", "Zwei Hunde."]
SCORED = {"return_scores": True, "return_tokens": True}
FIELDS = ["translation_text", "score", "log_probability", "tokens"]


def translator(tokenizer, model=None, **options):
    model = tiny_model() if model is None else model
    return TranslationPipeline(model, tokenizer, compile=False, **options)


def as_list(answers):
    return answers if isinstance(answers, list) else [answers]


SEARCHES = [{"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}]


@pytest.mark.parametrize("options", SEARCHES)
def test_pipeline_returns_scores_beside_the_same_texts(tiny_tokenizer, options):
    translate = translator(tiny_tokenizer)
    plain = translate(TEXTS, **options)
    scored = translate(TEXTS, **SCORED, **options)
    for texts, answers in zip(map(as_list, plain), map(as_list, scored), strict=True):
        for text, answer in zip(texts, answers, strict=True):
            assert text == {"translation_text": answer["translation_text"]}
            assert [*answer] == FIELDS
            total = sum(token["log_probability"] for token in answer["tokens"])
            assert answer["log_probability"] == close_to(total)
            assert joined(answer["tokens"]) == answer["translation_text"]
        scores = [answer["score"] for answer in answers]
        assert scores == sorted(scores, reverse=True)


def test_pipeline_scores_are_of_the_model(tiny_tokenizer):
    model = tiny_model()
    translate = translator(tiny_tokenizer, model)
    (answer,) = translate(TEXTS[0], num_beams=1, **SCORED)
    texts = [token["text"] for token in answer["tokens"]]
    (source,) = encode_sentences(tiny_tokenizer, TEXTS[:1])
    tokens = model.generate(torch.tensor([source]), num_beams=1)[0, 1:].tolist()
    assert texts == token_texts(tiny_tokenizer, tokens)
    (forced,) = score_tokens(model, [source], [tokens])
    assert [token["log_probability"] for token in answer["tokens"]] == close_to(forced)
    assert answer["log_probability"] == close_to(sum(forced))


def test_pipeline_adds_scores_of_segments(tiny_tokenizer):
    """Sum log-probabilities, and average scores."""
    translate = translator(tiny_tokenizer, return_scores=True)
    first, second, both, blank = translate(["a b", "c. d.", "a b\n\nc. d.", " \n"])
    total = first["log_probability"] + second["log_probability"]
    assert both["log_probability"] == close_to(total)
    assert both["score"] == close_to((first["score"] + second["score"]) / 2)
    assert blank["score"] == blank["log_probability"] == 0.0
    assert blank["translation_text"] == ""


def test_pipeline_names_models_without_scores(tiny_tokenizer):
    model = tiny_long_model(layer_types="transfo_xl_attention")
    message = "With `return_tokens`, the model must be an unchanged translation model"
    with pytest.raises(ValueError, match=message):
        translator(tiny_tokenizer, model)("A", return_tokens=True)
    message = "With `return_tokens`, the weights must be float32 or bfloat16"
    with pytest.raises(ValueError, match=message):
        translator(tiny_tokenizer, tiny_model().half())("A", return_tokens=True)


def test_service_returns_scores_and_tokens_on_request(tiny_tokenizer):
    assert_service_returns_scores_like(translator(tiny_tokenizer))
