"""Ensembles: the logarithm of mean probabilities, and models and weights that do not fit
together.
"""

import math

import pytest
import torch

from tests.devices import NoHostReads
from tests.tiny import tiny_causal_lm, tiny_model
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.search_options import SearchOptions
from vanilla_transformer.decoding.engine.search_state import SearchState
from vanilla_transformer.decoding.engine.static_decoder import SlotMemory, StaticDecoder
from vanilla_transformer.decoding.engine.static_search import SearchStep
from vanilla_transformer.decoding.ensemble import Ensemble, check_weights


@torch.inference_mode()
def test_step_of_ensemble_computes_the_logarithm_of_mean_probabilities():
    models = [tiny_model(seed, vocab_size=20, decoder_layers=seed + 1) for seed in (0, 1)]
    step = SearchStep(
        [StaticDecoder(model) for model in models], SearchOptions(2, (2,)), [0.75, 0.25]
    )
    state = SearchState.empty(1, 4, torch.device("cpu"), step.options)
    state.last_tokens.copy_(torch.tensor([[5, 6]]))
    inputs = state.last_tokens, state.time, state.done, state.ancestors
    each = [StaticDecoder(model)(*inputs, SlotMemory.empty(model, 1, 2, 4)) for model in models]
    with NoHostReads():
        found = step._logits(
            state, state.ancestors, [SlotMemory.empty(model, 1, 2, 4) for model in models]
        )
    mean = 0.75 * each[0].double().softmax(-1) + 0.25 * each[1].double().softmax(-1)
    torch.testing.assert_close(found.double(), mean.log(), rtol=0, atol=1e-5)


def test_weights_are_divided_by_their_sum():
    assert check_weights(None, 4) == (0.25,) * 4
    assert check_weights([1, 3.0], 2) == (0.25, 0.75)


@pytest.mark.parametrize(
    "weights", [[1.0], [1, 2, 3], [1, 0], [1, -2.0], [1, math.inf], [1, math.nan], [1, "2"]]
)
def test_ensemble_refuses_weights_that_do_not_fit(weights):
    with pytest.raises(
        ValueError, match="`ensemble_weights` must be 2 positive numbers, one for each model, got"
    ):
        Ensemble([tiny_model(), tiny_model()], weights)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (
            {"vocab_size": 301},
            "one vocabulary, but model 1 has source vocabulary 300 and model 2 has 301",
        ),
        ({"source_eos": False}, "model 1 has `source_eos` True and model 2 has False"),
    ],
)
def test_ensemble_refuses_models_of_different_vocabularies(other, text):
    with pytest.raises(ValueError, match=text):
        Ensemble([tiny_model(), tiny_model(**other)])


def test_ensemble_refuses_one_model_and_other_kinds_of_models():
    with pytest.raises(ValueError, match="An ensemble must have 2 models or more, got 1"):
        Ensemble([tiny_model()])
    with pytest.raises(
        ValueError, match="An ensemble needs translation models, got VanillaTransformerForCausalLM"
    ):
        Ensemble([tiny_model(), tiny_causal_lm()])
    training = tiny_model().train()
    with pytest.raises(
        ValueError, match="got VanillaTransformerForConditionalGeneration in training mode"
    ):
        Engine(Ensemble([tiny_model(), training]), num_beams=1, compile=False)


def test_ensemble_has_as_many_positions_as_its_models_have_learned():
    learned = tiny_model(position_embedding_type="learned", max_position_embeddings=9)
    engine = Engine(
        Ensemble([tiny_model(), learned]), num_beams=1, compile=False, max_new_tokens=20
    )
    with pytest.raises(ValueError, match="at most 9 tokens, as many as learned positions, got 10"):
        engine.decode([[5] * 9 + [2]])
    (hypothesis,) = engine.decode([[5] * 7 + [2]])[0]
    assert len(hypothesis.tokens) <= 8
