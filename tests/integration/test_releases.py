"""In a release of transformers or torch that is not tested yet, a short search is compared before
the first one.
"""

import pytest
import torch
from transformers.generation import GenerationMixin

from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer import compatibility_vanilla_transformer as compatibility
from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.configuration_vanilla_transformer_long import LAYER_TYPES

MODELS = {
    "encoder-decoder": tiny_model,
    "separate vocabularies": lambda: tiny_model(
        share_encoder_decoder_embeddings=False, decoder_vocab_size=30
    ),
    "pre-norm, learned positions": lambda: tiny_model(
        normalize_before=True, position_embedding_type="learned", max_position_embeddings=64
    ),
    "decoder-only": tiny_causal_lm,
    **{
        f"long, {kind}": lambda kind=kind: tiny_long_model(layer_types=kind) for kind in LAYER_TYPES
    },
    **{
        f"long, {kind}, decoder-only": lambda kind=kind: tiny_long_causal_lm(layer_types=kind)
        for kind in LAYER_TYPES
    },
    "long, reversible": lambda: tiny_long_model(reversible=True, normalize_before=True),
}
SOURCE = torch.tensor([[5, 6, 7, 8]])
REFUSAL = (
    r"Models must be used with a tested release of (transformers \(5\.12 to .*\): 5\.99\.0|"
    r"torch \(2\.11 to .*\): 2\.99\.0\+cpu) computes something else"
)


UNTESTED = {"transformers": (compatibility, "5.99.0"), "torch": (torch, "2.99.0+cpu")}


@pytest.fixture(autouse=True, params=UNTESTED)
def untested_release(monkeypatch, request):
    module, version = UNTESTED[request.param]
    monkeypatch.setattr(module, "__version__", version)
    monkeypatch.setattr(compatibility, "_checked_classes", set())


def rename_cache(monkeypatch):
    prepare = GenerationMixin.prepare_inputs_for_generation

    def renamed(self, *args, **kwargs):
        inputs = prepare(self, *args, **kwargs)
        return {"kv_cache" if name == CACHE else name: value for name, value in inputs.items()}

    monkeypatch.setattr(GenerationMixin, "prepare_inputs_for_generation", renamed)


def drop_cache(monkeypatch):
    prepare = GenerationMixin.prepare_inputs_for_generation

    def without_cache(self, *args, **kwargs):
        inputs = prepare(self, *args, **kwargs)
        inputs.pop(CACHE, None)
        return inputs

    monkeypatch.setattr(GenerationMixin, "prepare_inputs_for_generation", without_cache)


def rename_update_of_beams(monkeypatch):
    """Give beam search another method for the scores of finished beams, which ours does not
    override.
    """
    update, search = GenerationMixin._update_finished_beams, GenerationMixin._beam_search

    def with_renamed_method(self, *args, **kwargs):
        monkeypatch.setattr(type(self), "_update_finished_beams", update)
        return search(self, *args, **kwargs)

    monkeypatch.setattr(GenerationMixin, "_beam_search", with_renamed_method)


def change_scores_of_beams(monkeypatch):
    update = GenerationMixin._update_finished_beams

    def changed(self, **arguments):
        return update(self, **arguments | {"topk_log_probs": arguments["topk_log_probs"] * 2})

    monkeypatch.setattr(GenerationMixin, "_update_finished_beams", changed)


def rename_argument_of_masks(monkeypatch):
    from vanilla_transformer.modeling_vanilla_transformer import (
        VanillaTransformerDecoder,
        create_causal_mask,
    )

    def renamed(config, inputs_embeds, attention_mask, kv_cache=None):
        return create_causal_mask(config, inputs_embeds, attention_mask, **{CACHE: kv_cache})

    monkeypatch.setattr(VanillaTransformerDecoder, "create_mask", staticmethod(renamed))


def ignore_padding_of_masks(monkeypatch):
    from vanilla_transformer import modeling_vanilla_transformer as modeling

    create = modeling.create_bidirectional_mask
    monkeypatch.setattr(
        modeling,
        "create_bidirectional_mask",
        lambda config, states, mask, **kwargs: create(config, states, None, **kwargs),
    )


CHANGES = [
    rename_cache,
    drop_cache,
    rename_update_of_beams,
    change_scores_of_beams,
    rename_argument_of_masks,
]
CHANGES += [ignore_padding_of_masks]


@pytest.mark.parametrize("name", MODELS)
def test_release_that_computes_the_same_is_used(name):
    model = MODELS[name]()
    model.generate(SOURCE, max_new_tokens=2)
    assert type(model) in compatibility._checked_classes


@pytest.mark.parametrize("change", CHANGES)
def test_release_that_changes_the_search_is_refused(change, monkeypatch):
    change(monkeypatch)
    model = tiny_model()
    for _ in range(2):  # also the second time
        with pytest.raises(ValueError, match=REFUSAL):
            model.generate(SOURCE, max_new_tokens=2)
