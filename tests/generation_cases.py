"""Random models and sources for `generate()`, and the library's own search."""

import warnings

import torch
from hypothesis import assume
from hypothesis import strategies as st

from tests.tiny import tiny_config
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.decoding.engine.engine import Engine

# Strategies for fields of models, for batches and for options of the search.
SHAPES = {
    "seed": st.integers(0, 10_000),
    "vocab_size": st.sampled_from([13, 40, 300]),
    "init_std": st.sampled_from([0.1, 0.3, 0.6]),
    "normalize_before": st.booleans(),
    "position_embedding_type": st.sampled_from(["sinusoidal", "learned"]),
}
BATCHES = {
    "sentences": st.integers(1, 9),
    "length": st.integers(1, 30),
    "left": st.booleans(),
    "taste_for_eos": st.sampled_from([0.0, 2.0, 4.0]),
}
SEARCHES = {
    "num_beams": st.integers(1, 6),
    "early_stopping": st.sampled_from([True, False, "never"]),
    "length_penalty": st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0]),
    "length_penalty_type": st.sampled_from(["wu", "power"]),
}


def model_of(seed=0, **changes):
    torch.manual_seed(seed)
    config = tiny_config(**{"vocab_size": 40, "init_std": 0.3, "decoder_layers": 2} | changes)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    model.generation_config.max_new_tokens_beyond_source = 12  # 50 would show no more
    return model


def sources(sentences, length, vocab_size=40, left=False):
    """Return random sentences of many lengths, padded to `length`."""
    tokens = torch.randint(3, vocab_size, (sentences, length))
    for row in tokens:
        padding = int(torch.randint(0, length, ()))
        row[:padding] = 0
    return tokens if left else tokens.flip(1)


def assert_engine_gives_tokens_of_generate(shape, sentences, length, left, taste_for_eos, options):
    """Compare an engine as the `custom_generate` of `generate()` with the library's own search."""
    model = model_of(**shape, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = taste_for_eos
    tokens = sources(sentences, length, shape["vocab_size"], left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.generate(
            tokens, **options, return_dict_in_generate=True, output_scores=True
        )
        # The scores of hypotheses without a possible continuation are equal, and any of them may be
        # returned.
        assume(
            expected.get("sequences_scores") is None or (expected.sequences_scores > -1.0e8).all()
        )
        search = {name: value for name, value in options.items() if name != "pad_token_id"}
        engine = Engine(model, compile=False, **search)
        assert torch.equal(
            model.generate(tokens, **options, custom_generate=engine), expected.sequences
        )
