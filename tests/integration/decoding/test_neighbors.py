"""A sentence has the translation and the scores that it has alone, whatever is translated beside it."""

import random

import pytest
import torch
from transformers import pipeline

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

WORDS = [
    "a",
    "man",
    "two",
    "dogs",
    "run",
    "across",
    "the",
    "green",
    "grass",
    "sleeps",
    "woman",
    "and",
    "on",
    "of",
    "bench",
]


@pytest.fixture(scope="module")
def translate():
    return pipeline("translation", model=tiny_model(init_std=0.4), tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(600)]


@pytest.fixture(scope="module")
def alone(translate, texts):
    return translate(texts, batch_size=1, max_new_tokens=8, return_scores=True)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_neighbors_in_a_batch_change_nothing(translate, texts, alone, seed):
    order = list(range(len(texts)))
    if seed is not None:
        random.Random(seed).shuffle(order)
    together = translate([texts[place] for place in order], batch_size=32, max_new_tokens=8, return_scores=True)
    for place, ours in zip(order, together, strict=True):
        assert ours["translation_text"] == alone[place]["translation_text"]
        assert ours["score"] == pytest.approx(alone[place]["score"], abs=5e-6)


@pytest.mark.parametrize("beams", [1, 4])
def test_scores_of_the_engine_are_what_the_model_computes(translate, texts, beams):
    sources = encode_sentences(translate.tokenizer, texts[:60])
    engine = Engine(translate.model, slots=16, compile=False, num_beams=beams, max_new_tokens=8)
    start = translate.model.config.decoder_start_token_id
    for source, (hypothesis, *_) in zip(sources, engine.translate_tokens(sources, 1), strict=True):
        decoded = torch.tensor([[start, *hypothesis.tokens[:-1]]])
        with torch.no_grad():
            logits = translate.model(input_ids=torch.tensor([source]), decoder_input_ids=decoded).logits[0]
        own = logits.log_softmax(dim=-1)[range(len(hypothesis.tokens)), hypothesis.tokens]
        assert hypothesis.token_log_probabilities == pytest.approx(own.tolist(), abs=5e-6)
        assert hypothesis.log_probability == pytest.approx(own.double().sum().item(), rel=5e-6)
