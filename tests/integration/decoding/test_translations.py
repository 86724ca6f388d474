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

TEXTS = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "A",
    "",
    "a b\n\nc. d.",
    "Zwei Hunde.",
]


def translator(tokenizer, model=None, **options):
    return TranslationPipeline(
        tiny_model() if model is None else model, tokenizer, compile=False, **options
    )


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}])
def test_pipeline_returns_scores_and_tokens_beside_the_same_texts(tiny_tokenizer, options):
    translate = translator(tiny_tokenizer)
    plain, scored = (
        translate(TEXTS, **options),
        translate(TEXTS, return_scores=True, return_tokens=True, **options),
    )
    for texts, answers in zip(plain, scored, strict=True):
        texts, answers = (each if isinstance(each, list) else [each] for each in (texts, answers))
        assert texts == [{"translation_text": each["translation_text"]} for each in answers]
        assert [*answers[0]] == ["translation_text", "score", "log_probability", "tokens"]
        for each in answers:
            assert each["log_probability"] == close_to(
                sum(token["log_probability"] for token in each["tokens"])
            )
            assert joined(each["tokens"]) == each["translation_text"]
        scores = [each["score"] for each in answers]
        assert scores == sorted(scores, reverse=True)


def test_pipeline_scores_are_the_log_probabilities_of_the_model(tiny_tokenizer):
    model = tiny_model()
    (answer,) = translator(tiny_tokenizer, model)(
        TEXTS[0], num_beams=1, return_scores=True, return_tokens=True
    )
    texts = [token["text"] for token in answer["tokens"]]
    (source,) = encode_sentences(tiny_tokenizer, TEXTS[:1])
    tokens = model.generate(torch.tensor([source]), num_beams=1)[0, 1:].tolist()
    assert texts == token_texts(tiny_tokenizer, tokens)
    (forced,) = score_tokens(model, [source], [tokens])
    assert [token["log_probability"] for token in answer["tokens"]] == close_to(forced)
    assert answer["log_probability"] == close_to(sum(forced))


def test_pipeline_adds_log_probabilities_of_segments_and_averages_their_scores(tiny_tokenizer):
    translate = translator(tiny_tokenizer, return_scores=True)
    first, second, both, blank = translate(["a b", "c. d.", "a b\n\nc. d.", " \n"])
    assert both["log_probability"] == close_to(first["log_probability"] + second["log_probability"])
    assert both["score"] == close_to((first["score"] + second["score"]) / 2)
    assert (blank["score"], blank["log_probability"], blank["translation_text"]) == (0.0, 0.0, "")


def test_pipeline_names_models_without_scores(tiny_tokenizer):
    with pytest.raises(
        ValueError, match="With `return_tokens`, the model must be an unchanged translation model"
    ):
        translator(tiny_tokenizer, tiny_long_model(layer_types="transfo_xl_attention"))(
            "A", return_tokens=True
        )
    with pytest.raises(
        ValueError, match="With `return_tokens`, the weights must be float32 or bfloat16"
    ):
        translator(tiny_tokenizer, tiny_model().half())("A", return_tokens=True)


def test_service_returns_scores_and_tokens_on_request(tiny_tokenizer):
    assert_service_returns_scores_like(translator(tiny_tokenizer))
