"""An engine refuses options, models and requests in one line each."""

from functools import partial

import pytest

from tests.engine_cases import EOS
from tests.tiny import (
    tiny_causal_lm,
    tiny_long_causal_lm,
    tiny_long_model,
    tiny_masked_lm,
    tiny_model,
)
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.requests import DecodeRequest

LEARNED = {"vocab_size": 40, "position_embedding_type": "learned", "max_position_embeddings": 12}
XL = {"layer_types": "transfo_xl_attention"}
SAMPLING = {"do_sample": True, "num_beams": 1}
ALIGNED = {"return_alignments": True}
HEADS = (
    "`alignment_heads` must be a list of [layer, head] pairs of 1 layers and 2 heads, "
    "counted from 0, got "
)


def aligned_model(heads):
    model = tiny_model()
    model.config.alignment_heads = heads
    return model


def sources(*sources):
    """Return a call in which the last source is wrong."""
    return {"requests": [[7, EOS], *sources]}


def requests(*fields):
    return {"requests": [DecodeRequest([5, EOS], *fields)]}


model, prompts = partial(tiny_model, vocab_size=40), partial(tiny_causal_lm, vocab_size=40)
learned, learned_prompts = partial(tiny_model, **LEARNED), partial(tiny_causal_lm, **LEARNED)
UNSUPPORTED = (
    "The model must be an unchanged translation model or causal language model of this "
    "package, got "
)
OPTIONS = [
    (model, {"slots": 0}, "`slots` must be an integer of 1 or more, got 0."),
    (model, {"slots": 2.0}, "`slots` must be an integer of 1 or more, got 2.0."),
    (model, {"precision": "int3"}, ", 'auto', got 'int3'."),
    (model, {"compile": "x"}, "`compile` must be True, False or 'auto', got 'x'."),
    (model, {"num_beams": 0}, "`num_beams` must be an integer from 1 to 500, got 0."),
    (
        model,
        {"max_new_tokens": None},
        "One of `max_new_tokens`, `max_new_tokens_beyond_source` or `max_length` must",
    ),
    (
        prompts,
        {"max_new_tokens": None, "max_new_tokens_beyond_source": 4},
        "`max_new_tokens_beyond_source` needs a model with an encoder. Give `max_new_tokens`.",
    ),
    (prompts, {"no_repeat_ngram_size": 2}, "`no_repeat_ngram_size` needs a model with an encoder."),
    (
        model,
        {"forced_bos_token_id": 7, "target_prefix": ""},
        "`forced_bos_token_id` needs a model with an encoder, ",
    ),
    (
        model,
        {"num_beams": 1, "constraint_tokens": 2},
        "Constraints need beam search: `num_beams` must be 2 or more",
    ),
    (model, {"do_sample": True, "num_beams": 3}, "Sampling needs `num_beams=1`, got 3"),
    (
        partial(tiny_long_model, **XL),
        {},
        f"{UNSUPPORTED}VanillaTransformerLongForConditionalGeneration with `tra",
    ),
    (
        partial(tiny_long_causal_lm, **XL),
        {},
        "VanillaTransformerLongForCausalLM with `transfo_xl_attention`.",
    ),
    (
        lambda: tiny_long_model().train(),
        {},
        "VanillaTransformerLongForConditionalGeneration in training mode.",
    ),
    (tiny_masked_lm, {}, f"{UNSUPPORTED}VanillaTransformerForMaskedLM."),
    (
        model,
        ALIGNED,
        "must have `alignment_heads`, got none. `vanilla-transformer choose-alignment-head MODEL",
    ),
    (prompts, ALIGNED, "need a model of this package with softmax cross-attention, got none"),
    (
        partial(tiny_long_model, cross_attention_type="linear_attention"),
        ALIGNED,
        "with softmax cross-attention, got VanillaTransformerLinearAttention",
    ),
    *(
        (partial(aligned_model, heads), ALIGNED, f"{HEADS}{heads!r}.")
        for heads in ([[1, 0]], [[0, 2]], [[-1, 0]], [[0]], [0, 1], 3, [[0, True]], [["0", 0]])
    ),
]
WRONG = "Token ids must be from 0 to 39, got "
CALLS = [
    (learned, {}, sources([7, 40, EOS]), f"{WRONG}40 in source 1."),
    (learned, {}, sources([-1, EOS]), f"{WRONG}-1 in source 1."),
    (learned, {}, {"requests": [[-1, EOS]]}, f"{WRONG}-1 in source 0."),
    (learned, {}, sources([]), "A source must have at least 1 token, got 0 in source 1."),
    (
        learned,
        {},
        sources([7] * 13),
        "at most 12 tokens, as many as learned positions, got 13 in source 1.",
    ),
    (learned_prompts, {}, sources([7, 40]), f"{WRONG}40 in prompt 1."),
    (learned_prompts, {}, sources([]), "A prompt must have at least 1 token, got 0 in prompt 1."),
    (
        learned_prompts,
        {},
        sources([7] * 13),
        "at most 12 tokens, as many as learned positions, got 13 in prompt 1.",
    ),
    (
        learned_prompts,
        {"max_new_tokens": None, "max_length": 9},
        sources([7] * 9),
        "A prompt must have at most 8 tokens before `max_length`, got 9 in prompt 1.",
    ),
    *(
        (
            model,
            {},
            sources() | {"num_return_sequences": number},
            f"`num_return_sequences` must be from 1 to `num_beams`, got {number} with 2 beams.",
        )
        for number in (0, 3)
    ),
    (model, SAMPLING, sources() | {"seed": "x"}, "`seed` must be an integer, got 'x'"),
    (model, SAMPLING, requests((), (), 2.5), "`seed` must be an integer, got 2.5"),
    (
        model,
        SAMPLING,
        sources() | {"num_return_sequences": 0},
        "must be an integer of 1 or more, got 0",
    ),
    (model, {}, sources() | {"seed": 1}, "`seed` needs `do_sample=True`"),
    (model, {}, requests([7]), "A prefix needs an engine with `target_prefix`."),
    (model, {"target_prefix": ""}, requests([99]), "EOS only at its end, got [99] for source 0."),
    (
        model,
        {"target_prefix": ""},
        requests([EOS, 7]),
        "EOS only at its end, got [2, 7] for source 0.",
    ),
    (
        model,
        {"target_prefix": ""},
        requests([7] * 8),
        "shorter than the 8 tokens of the limit, got 8 tokens for",
    ),
    *(
        (model, {"max_new_tokens": 3, "constraint_tokens": 2}, requests((), phrases), words)
        for phrases, words in (
            ([[]], "A constraint must have a token, got none."),
            ([[EOS]], "A constraint must have tokens of the vocabulary besides EOS, got 2."),
            ([[40]], "A constraint must have tokens of the vocabulary besides EOS, got 40."),
            ([[5, 6], [7, 8]], "A translation may have 3 tokens, but its constraints have 4."),
            ([[5, 6, 7]], "Constraints need an engine with `constraint_tokens=3` or more, got 2."),
        )
    ),
    (
        model,
        {"max_new_tokens": 9, "constraint_tokens": 3, "target_prefix": ""},
        requests([11] * 7, [[7, 8], [9]]),
        "A translation may have 2 tokens, but its constraints have 3",
    ),
]


@pytest.mark.parametrize(
    ("build", "options", "call", "words"),
    [*((build, options, None, words) for build, options, words in OPTIONS), *CALLS],
    ids=[words for *_, words in OPTIONS + CALLS],
)
def test_engine_refuses(build, options, call, words):
    model = build()
    if model.can_generate():
        model.generation_config.update(max_new_tokens_beyond_source=None, max_length=None)
    options = {"slots": 2, "num_beams": 2, "max_new_tokens": 8, "compile": False} | options
    engine = None if call is None else Engine(model, **options)
    with pytest.raises(ValueError) as error:
        Engine(model, **options) if engine is None else engine.decode(**call)
    assert words in str(error.value) and "\n" not in str(error.value)
