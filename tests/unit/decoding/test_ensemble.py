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
    decoders = [StaticDecoder(model) for model in models]
    step = SearchStep(decoders, SearchOptions(2, (2,)), [0.75, 0.25])
    state = SearchState.empty(1, 4, torch.device("cpu"), step.options)
    state.last_tokens.copy_(torch.tensor([[5, 6]]))
    inputs = state.last_tokens, state.time, state.done, state.ancestors
    probabilities = []
    for model in models:
        logits = StaticDecoder(model)(*inputs, SlotMemory.empty(model, 1, 2, 4))
        probabilities.append(logits.double().softmax(-1))
    memories = [SlotMemory.empty(model, 1, 2, 4) for model in models]
    with NoHostReads():
        logarithms = step._logits(*inputs, memories)
    mean = 0.75 * probabilities[0] + 0.25 * probabilities[1]
    torch.testing.assert_close(logarithms.double(), mean.log(), rtol=0, atol=1e-5)


def test_weights_are_divided_by_their_sum():
    assert check_weights(None, 4) == (0.25,) * 4
    assert check_weights([1, 3.0], 2) == (0.25, 0.75)


WRONG_WEIGHTS = [[1.0], [1, 2, 3], [1, 0], [1, -2.0], [1, math.inf], [1, math.nan], [1, "2"]]


@pytest.mark.parametrize("weights", WRONG_WEIGHTS)
def test_ensemble_refuses_weights_that_do_not_fit(weights):
    message = "`ensemble_weights` must be 2 positive numbers, one for each model, got"
    with pytest.raises(ValueError, match=message):
        Ensemble([tiny_model(), tiny_model()], weights)


VOCABULARIES = "one vocabulary, but model 1 has source vocabulary 300 and model 2 has 301"
ENDS = "model 1 has `source_eos` True and model 2 has False"
OTHERS = [({"vocab_size": 301}, VOCABULARIES), ({"source_eos": False}, ENDS)]


@pytest.mark.parametrize(("other", "text"), OTHERS)
def test_ensemble_refuses_models_of_different_vocabularies(other, text):
    with pytest.raises(ValueError, match=text):
        Ensemble([tiny_model(), tiny_model(**other)])


def test_ensemble_refuses_one_model_and_other_kinds_of_models():
    with pytest.raises(ValueError, match="An ensemble must have 2 models or more, got 1"):
        Ensemble([tiny_model()])
    message = "An ensemble needs translation models, got VanillaTransformerForCausalLM"
    with pytest.raises(ValueError, match=message):
        Ensemble([tiny_model(), tiny_causal_lm()])
    training = tiny_model().train()
    message = "got VanillaTransformerForConditionalGeneration in training mode"
    with pytest.raises(ValueError, match=message):
        Engine(Ensemble([tiny_model(), training]), num_beams=1, compile=False)


def test_ensemble_has_as_many_positions_as_its_models_have_learned():
    learned = tiny_model(position_embedding_type="learned", max_position_embeddings=9)
    ensemble = Ensemble([tiny_model(), learned])
    engine = Engine(ensemble, num_beams=1, compile=False, max_new_tokens=20)
    message = "at most 9 tokens, as many as learned positions, got 10"
    with pytest.raises(ValueError, match=message):
        engine.decode([[5] * 9 + [2]])
    (hypothesis,) = engine.decode([[5] * 7 + [2]])[0]
    assert len(hypothesis.tokens) <= 8
