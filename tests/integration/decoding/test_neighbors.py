"""A sentence has the translation that it has alone, whatever is translated beside it."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.closeness import close_to
from tests.sweeps import examples, rare
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.prefill import prefill
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

EOS = 2
WORDS = ["a", "man", "two", "dogs", "run", "across", "the", "green", "grass"]
WORDS += ["sleeps", "woman", "and", "bench"]
words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
TEXTS = words | st.sampled_from(["", "?", "a\n\nb c"])
SOURCES = st.lists(st.integers(5, 39), max_size=24).map(lambda tokens: [*tokens, EOS])


@pytest.fixture(scope="module")
def translate():
    model, options = tiny_model(init_std=0.4), {"compile": False, "num_beams": 4}
    return TranslationPipeline(model, tiny_tokenizer(), **options)


@pytest.fixture(scope="module", params=[1, 4])
def engines(request):
    """Return an engine, and another one that decodes one sentence at once."""
    model = tiny_model(vocab_size=40, init_std=0.4)
    options = {"num_beams": request.param, "compile": False}
    return [Engine(model, slots=slots, **options) for slots in (6, 1)]


@examples(50)
@given(sources=st.lists(SOURCES, min_size=2, max_size=12))
def test_neighbors_in_the_slots_of_an_engine_change_nothing(engines, sources):
    together, alone = engines
    for source, (ours, *_) in zip(sources, together.decode(sources), strict=True):
        ((expected, *_),) = alone.decode([source])
        assert ours.tokens == expected.tokens
        assert ours.score == close_to(expected.score)


batch_sizes = st.sampled_from([1, 3, 32])


@examples(30)
@given(st.lists(TEXTS, min_size=2, max_size=12), batch_sizes, st.randoms())
def test_neighbors_in_a_call_change_nothing(translate, texts, batch_size, order):
    expected = {text: translate(text)[0] for text in texts}
    order.shuffle(texts)
    answers = translate(texts, batch_size=batch_size)
    assert answers == [expected[text] for text in texts]


def random_texts(draw, number):
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(number)]


@pytest.mark.parametrize("beams", [rare(1), 4])
def test_neighbors_change_few_translations_in_bfloat16(beams):
    texts = random_texts(random.Random(0), 50)
    options = {"precision": "bfloat16", "compile": False}
    options |= {"num_beams": beams, "max_new_tokens": 8}
    model = tiny_model(init_std=0.4)
    translate = TranslationPipeline(model, tiny_tokenizer(), **options)
    differences = 0
    for text, together in zip(texts, translate(texts), strict=True):
        differences += translate(text) != [together]
    assert differences <= 1


@examples(30)
@given(sources=st.lists(SOURCES, min_size=2, max_size=8))
def test_neighbors_change_no_bit_of_the_encoder_in_bfloat16(sources):
    model = tiny_model(vocab_size=40, d_model=256, init_std=0.1)
    engine = Engine(model, precision="bfloat16", compile=False)
    with torch.inference_mode():
        together = prefill(engine.model, sources, [*map(len, sources)])
        for row, source in enumerate(sources):
            alone = prefill(engine.model, [source], [len(source)])
            for many, one in zip(together, alone, strict=True):  # (W, H, S, K) each
                length = len(source)
                assert torch.equal(many[row, :, :length], one[0, :, :length])


@pytest.mark.parametrize("beams", [1, 4])
def test_scores_of_the_engine_are_what_the_model_computes(beams):
    model = tiny_model(init_std=0.4)
    texts = random_texts(random.Random(0), 30)
    sources = encode_sentences(tiny_tokenizer(), texts)
    options = {"slots": 16, "num_beams": beams, "max_new_tokens": 8}
    engine = Engine(model, compile=False, **options)
    start = model.config.decoder_start_token_id
    for source, (hypothesis, *_) in zip(sources, engine.decode(sources), strict=True):
        tokens = hypothesis.tokens
        inputs = {"decoder_input_ids": torch.tensor([[start, *tokens[:-1]]])}
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source]), **inputs).logits[0]
        expected = logits.log_softmax(dim=-1)[range(len(tokens)), tokens]
        assert hypothesis.token_log_probabilities == close_to(expected.tolist())
        assert hypothesis.log_probability == close_to(expected.double().sum().item())
