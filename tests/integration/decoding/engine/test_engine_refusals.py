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

LEARNED = {"vocab_size": 40, "position_embedding_type": "learned"}
LEARNED["max_position_embeddings"] = 12
XL = {"layer_types": "transfo_xl_attention"}
SAMPLING = {"do_sample": True, "num_beams": 1}
ALIGNED = {"return_alignments": True}
HEADS = "`alignment_heads` must be a list of [layer, head] pairs of 1 layers and 2 heads,"
HEADS += " counted from 0, got "
WRONG_HEADS = [[[1, 0]], [[0, 2]], [[-1, 0]], [[0]], [0, 1], 3, [[0, True]], [["0", 0]]]


def aligned_model(heads):
    model = tiny_model()
    model.config.alignment_heads = heads
    return model


def sources(*sources):
    """Return a call in which the last source is wrong."""
    return {"requests": [[7, EOS], *sources]}


def requests(*fields):
    return {"requests": [DecodeRequest([5, EOS], *fields)]}


def drafted(*tokens):
    return {"requests": [DecodeRequest([5, EOS], draft=tokens)]}


def several(number):
    return sources() | {"num_return_sequences": number}


model = partial(tiny_model, vocab_size=40)
prompts = partial(tiny_causal_lm, vocab_size=40)
learned, learned_prompts = partial(tiny_model, **LEARNED), partial(tiny_causal_lm, **LEARNED)
linear = partial(tiny_long_model, cross_attention_type="linear_attention")
UNSUPPORTED = "The model must be an unchanged translation model or causal language model of"
UNSUPPORTED += " this package, got "
BEYOND = {"max_new_tokens": None, "max_new_tokens_beyond_source": 4}
NO_SOURCE = "`max_new_tokens_beyond_source` needs a model with an encoder. Give `max_new_tokens`."
NO_LIMIT = "One of `max_new_tokens`, `max_new_tokens_beyond_source` or `max_length` must"
NO_NGRAMS = "`no_repeat_ngram_size` needs a model with an encoder."
FORCED = {"forced_bos_token_id": 7, "target_prefix": ""}
DRAFTED = {"draft": "", "num_beams": 1}
ONE_BEAM = {"num_beams": 1, "constraint_tokens": 2}
TRAINING = "VanillaTransformerLongForConditionalGeneration in training mode."
XL_TEXTS = "VanillaTransformerLongForCausalLM with `transfo_xl_attention`."
NO_HEAD = "must have `alignment_heads`, got none. `vanilla-transformer choose-alignment-head MODEL"
NO_CROSS = "need a model of this package with softmax cross-attention, got none"
LINEAR = "with softmax cross-attention, got VanillaTransformerLinearAttention"


def train_long_model():
    return tiny_long_model().train()


OPTIONS = [
    (model, {"slots": 0}, "`slots` must be an integer of 1 or more, got 0."),
    (model, {"slots": 2.0}, "`slots` must be an integer of 1 or more, got 2.0."),
    (model, {"precision": "int3"}, ", 'auto', got 'int3'."),
    (model, {"compile": "x"}, "`compile` must be True, False or 'auto', got 'x'."),
    (model, {"num_beams": 0}, "`num_beams` must be an integer from 1 to 500, got 0."),
    (model, {"max_new_tokens": None}, NO_LIMIT),
    (model, {"draft": "", "num_beams": 2}, "A `draft` needs `num_beams=1` and, but for samples, o"),
    (prompts, BEYOND, NO_SOURCE),
    (prompts, {"no_repeat_ngram_size": 2}, NO_NGRAMS),
    (model, FORCED, "`forced_bos_token_id` needs a model with an encoder, "),
    (model, ONE_BEAM, "Constraints need beam search: `num_beams` must be 2 or more"),
    (model, {"do_sample": True, "num_beams": 3}, "Sampling needs `num_beams=1`, got 3"),
    (
        partial(tiny_long_model, **XL),
        {},
        f"{UNSUPPORTED}VanillaTransformerLongForConditionalGeneration with `tra",
    ),
    (partial(tiny_long_causal_lm, **XL), {}, XL_TEXTS),
    (train_long_model, {}, TRAINING),
    (tiny_masked_lm, {}, f"{UNSUPPORTED}VanillaTransformerForMaskedLM."),
    (model, ALIGNED, NO_HEAD),
    (prompts, ALIGNED, NO_CROSS),
    (linear, ALIGNED, LINEAR),
]
for heads in WRONG_HEADS:
    OPTIONS.append((partial(aligned_model, heads), ALIGNED, f"{HEADS}{heads!r}."))
WRONG = "Token ids must be from 0 to 39, got "
LONG = "at most 12 tokens, as many as learned positions, got 13 in"
ANY_PREFIX, CONSTRAINED = {"target_prefix": ""}, {"max_new_tokens": 3, "constraint_tokens": 2}
BOTH = {"max_new_tokens": 9, "constraint_tokens": 3, "target_prefix": ""}
LENGTH = {"max_new_tokens": None, "max_length": 9}
NO_ROOM = "A prompt must have at most 8 tokens before `max_length`, got 9 in prompt 1."
TOO_FEW = "Constraints need an engine with `constraint_tokens=3` or more, got 2."
BESIDES_EOS = "A constraint must have tokens of the vocabulary besides EOS, got"
SHORTER = "A translation may have 3 tokens, but its constraints have 4."
CALLS = [
    (learned, {}, sources([7, 40, EOS]), f"{WRONG}40 in source 1."),
    (learned, {}, sources([-1, EOS]), f"{WRONG}-1 in source 1."),
    (learned, {}, {"requests": [[-1, EOS]]}, f"{WRONG}-1 in source 0."),
    (learned, {}, sources([]), "A source must have at least 1 token, got 0 in source 1."),
    (learned, {}, sources([7] * 13), f"{LONG} source 1."),
    (learned_prompts, {}, sources([7, 40]), f"{WRONG}40 in prompt 1."),
    (learned_prompts, {}, sources([]), "A prompt must have at least 1 token, got 0 in prompt 1."),
    (learned_prompts, {}, sources([7] * 13), f"{LONG} prompt 1."),
    (learned_prompts, LENGTH, sources([7] * 9), NO_ROOM),
    (model, SAMPLING, sources() | {"seed": "x"}, "`seed` must be an integer, got 'x'"),
    (model, SAMPLING, requests((), (), 2.5), "`seed` must be an integer, got 2.5"),
    (model, SAMPLING, several(0), "must be an integer of 1 or more, got 0"),
    (model, {}, sources() | {"seed": 1}, "`seed` needs `do_sample=True`"),
    (model, {}, requests([7]), "A prefix needs an engine with `target_prefix`."),
    (model, {}, drafted(7), "A draft needs an engine with `draft`."),
    (model, DRAFTED, drafted(7, 40), "A draft must have token ids of the vocabulary, got 40."),
    (model, ANY_PREFIX, requests([99]), "EOS only at its end, got [99] for source 0."),
    (model, ANY_PREFIX, requests([EOS, 7]), "EOS only at its end, got [2, 7] for source 0."),
    (
        model,
        ANY_PREFIX,
        requests([7] * 8),
        "shorter than the 8 tokens of the limit, got 8 tokens for",
    ),
    (model, CONSTRAINED, requests((), [[]]), "A constraint must have a token, got none."),
    (model, CONSTRAINED, requests((), [[EOS]]), f"{BESIDES_EOS} 2."),
    (model, CONSTRAINED, requests((), [[40]]), f"{BESIDES_EOS} 40."),
    (model, CONSTRAINED, requests((), [[5, 6], [7, 8]]), SHORTER),
    (model, CONSTRAINED, requests((), [[5, 6, 7]]), TOO_FEW),
    (
        model,
        BOTH,
        requests([11] * 7, [[7, 8], [9]]),
        "A translation may have 2 tokens, but its constraints have 3",
    ),
]
for number in (0, 3):
    words = f"`num_return_sequences` must be from 1 to `num_beams`, got {number} with 2 beams."
    CALLS.append((model, {}, several(number), words))
CASES = [(build, options, None, words) for build, options, words in OPTIONS] + CALLS


@pytest.mark.parametrize(
    ("build", "options", "call", "words"), CASES, ids=[words for *_, words in CASES]
)
def test_engine_refuses(build, options, call, words):
    model = build()
    if model.can_generate():
        limits = {"max_new_tokens_beyond_source": None, "max_length": None}
        model.generation_config.update(**limits)
    defaults = {"slots": 2, "num_beams": 2, "max_new_tokens": 8, "compile": False}
    options = defaults | options
    engine = None if call is None else Engine(model, **options)
    with pytest.raises(ValueError) as error:
        Engine(model, **options) if engine is None else engine.decode(**call)
    assert words in str(error.value) and "\n" not in str(error.value)
