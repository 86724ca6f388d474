"""An engine as the `custom_generate` of `generate()`: the tokens of the library's own search, and
refusals.
"""

import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig, LogitsProcessorList
from transformers.generation import EosTokenCriteria, MaxTimeCriteria

from tests.engine_cases import (
    BATCHES,
    EOS,
    IMPOSSIBLE,
    PAD,
    SEARCHES,
    SHAPES,
    assert_engine_gives_tokens_of_generate,
    model_of,
    random_long_prompt_case,
    random_prompt_case,
    sources,
)
from tests.sweeps import examples, sample
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm
from vanilla_transformer.decoding.engine.engine import Engine

FIELDS = {"vocab_size": 40, "init_std": 0.4, "decoder_layers": 2, "lm_head_bias": True}
OPTIONS = {"max_new_tokens": 6, "do_sample": False}
OPTIONS |= {"eos_token_id": EOS, "pad_token_id": PAD}
FOLLOWED = ["num_beams", "eos_token_id", "max_new_tokens", "max_length"]
FOLLOWED += ["no_repeat_ngram_size"]
PROMPTS = [[7, 8, 9, 10], [9, 8], [11]]


def by_engine(model, *args, search=None, **options):
    """Return the tokens of an engine with the options of a call."""
    search = {name: options[name] for name in FOLLOWED if name in options} | (search or {})
    engine = Engine(model, compile=False, **search)
    return model.generate(*args, **options, custom_generate=engine)


# --- Translations ---


MORE_SENTENCES = {"sentences": st.integers(1, 12), "left": st.sampled_from([False, False, True])}
LIMITS = {"max_new_tokens": st.integers(1, 40), "min_new_tokens": st.integers(1, 8)}
LIMITS["eos_token_id"] = st.just([2, 4])
SOURCE_LIMITS = LIMITS | {"max_new_tokens_beyond_source": st.integers(0, 9)}
SOURCE_LIMITS["pad_token_id"] = st.sampled_from([0, 3])
STARTS = LIMITS | {"decoder_start_token_id": st.sampled_from([2, 5])}
STARTS["forced_bos_token_id"] = st.sampled_from([1, 5])
NO_NGRAMS = {"num_beams": st.integers(1, 4), "no_repeat_ngram_size": st.integers(1, 4)}


@examples(60)
@given(
    shape=st.fixed_dictionaries(SHAPES | {"source_eos": st.booleans()}),
    batch=st.fixed_dictionaries(BATCHES | MORE_SENTENCES),
    options=st.fixed_dictionaries(SEARCHES, optional=SOURCE_LIMITS),
)
def test_engine_gives_tokens_of_generate(shape, batch, options):
    assert_engine_gives_tokens_of_generate(shape, **batch, options=options)


@examples(60)
@given(
    shape=st.fixed_dictionaries(SHAPES),
    batch=st.fixed_dictionaries(BATCHES | {"left": st.just(False)}),
    options=st.fixed_dictionaries(SEARCHES | NO_NGRAMS, optional=STARTS),
)
def test_engine_repeats_no_ngrams_as_generate(shape, batch, options):
    assert_engine_gives_tokens_of_generate(shape, **batch, options=options)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_engine_returns_several_sequences(beams, dtype):
    model, tokens = model_of(1).to(dtype), sources(5, 11)
    options = {"num_beams": beams, "num_return_sequences": min(beams, 3)}
    engine_tokens = by_engine(model, tokens, **options)
    if dtype == torch.float32:
        assert torch.equal(engine_tokens, model.generate(tokens, **options))
    assert len(engine_tokens) == 5 * min(beams, 3)


@pytest.mark.parametrize("mask", [[1, 1, 0, 1], [0, 1, 1, 0]])
def test_engine_attends_to_positions_of_any_mask(mask):
    model, tokens = model_of(1), torch.tensor([[7, 8, 9, 2], [9, 7, 8, 2]])
    mask = torch.tensor([mask, [1, 1, 1, 1]])
    engine_tokens = by_engine(model, tokens, attention_mask=mask)
    assert torch.equal(engine_tokens, model.generate(tokens, attention_mask=mask))


def test_engine_takes_given_outputs_of_the_encoder():
    model, tokens = model_of(1), sources(3, 7)
    mask = tokens.ne(0).long()
    other = model.get_encoder()(tokens.flip(0), mask.flip(0))
    engine_tokens = by_engine(model, tokens, attention_mask=mask.flip(0), encoder_outputs=other)
    assert torch.equal(engine_tokens, model.generate(tokens.flip(0)))


# --- Prompts ---


def left_padded(prompts, pad=PAD):
    """Return prompts `(B, L)`, and their mask."""
    width = max(map(len, prompts))
    tokens, mask = [], []
    for prompt in prompts:
        padding = width - len(prompt)
        tokens.append([pad] * padding + prompt)
        mask.append([0] * padding + [1] * len(prompt))
    return torch.tensor(tokens), torch.tensor(mask)


def assert_same_tokens(model, *args, **options):
    engine_tokens = by_engine(model, *args, **options)
    assert torch.equal(engine_tokens, model.generate(*args, **options))


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("random_case", [random_prompt_case, random_long_prompt_case])
@pytest.mark.parametrize("first", sample(range(0, 60, 5), 0))
def test_engine_continues_prompts_as_generate(random_case, first):
    for seed in range(first, first + 5):
        case, draw = random_case(seed), random.Random(seed)
        prompts = case.sources
        if draw.random() < 0.2:
            prompts = [[*source, EOS] for source in prompts]
        pad = draw.choice([PAD, 3, None])
        tokens, mask = left_padded(prompts, PAD if pad is None else pad)
        options = case.options | {"pad_token_id": pad}
        options["num_return_sequences"] = case.num_return_sequences
        options["eos_token_id"] = options.get("eos_token_id", EOS)
        if "max_length" in options:
            options["max_length"] += 1  # for the EOS
        if pad is None or draw.random() < 0.5:
            options["attention_mask"] = mask
        scored = {"return_dict_in_generate": True, "output_scores": True}
        expected = case.model.generate(tokens, **options, **scored)
        scores = expected.get("sequences_scores")
        engine_tokens = by_engine(case.model, tokens, search=case.options, **options)
        # The scores of hypotheses without a possible continuation are equal, and any of them may be
        # returned.
        if scores is None or (scores > IMPOSSIBLE).all():
            assert torch.equal(engine_tokens, expected.sequences)


LONG = {"plain": {}}
LONG["linear"] = {"layer_types": "linear_attention", "position_embedding_type": "learned"}
LONG["reversible"] = {"layer_types": "full_attention", "reversible": True}
LONG["reversible"]["normalize_before"] = True
LONG["lsh"] = {"layer_types": "lsh_attention", "lsh_attn_chunk_length": 2}


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("fields", LONG.values(), ids=LONG.keys())
def test_engine_continues_padded_prompts(fields, beams):
    build = tiny_long_causal_lm if fields else tiny_causal_lm
    model = build(**FIELDS, **fields)
    tokens, mask = left_padded(PROMPTS)
    options = OPTIONS | {"num_beams": beams, "num_return_sequences": min(beams, 3)}
    assert_same_tokens(model, tokens, attention_mask=mask, **options)
    assert_same_tokens(model, input_ids=tokens, **options)


ENDED = [[[7, 8, EOS], [9, 8]], [[7, 8, EOS], [9, EOS, EOS], [8, EOS]]]


@pytest.mark.parametrize("prompts", ENDED)
def test_engine_reads_the_eos_that_generate_reads(prompts):
    assert_same_tokens(tiny_causal_lm(**FIELDS), left_padded(prompts)[0], **OPTIONS)


@pytest.mark.parametrize("eos", [EOS, [4, EOS]])
def test_engine_reads_padding_that_is_eos_without_a_mask(eos):
    tokens = torch.tensor([[EOS, EOS, 7, 8], [9, 8, 7, 6]])
    options = OPTIONS | {"pad_token_id": EOS, "eos_token_id": eos}
    assert_same_tokens(tiny_causal_lm(**FIELDS), tokens, **options)


def test_engine_follows_the_generation_config_of_a_call():
    model, config = tiny_causal_lm(**FIELDS), GenerationConfig(**OPTIONS, num_beams=3)
    tokens = left_padded(PROMPTS)[0]
    search = {"num_beams": 3, "max_new_tokens": 6, "eos_token_id": EOS}
    engine_tokens = by_engine(model, tokens, config, search=search)
    assert torch.equal(engine_tokens, model.generate(tokens, config))


# --- Refusals ---

SOURCE = {"input_ids": torch.tensor([[7, 8, 9, EOS]])}
PROMPT = {"input_ids": torch.tensor([[7, 8, 9], [9, 8, 7]])}
CACHE = object()
NO_GAP = "padding that is not on the left."


def masked_by(first):
    return {"attention_mask": torch.tensor([first, [1, 1, 1]])}


def stopped_by(criterion):
    return {"stopping_criteria": [criterion]}


PENALTY = {"length_penalty_type": "power"}
PROCESSOR = {"logits_processor": LogitsProcessorList([lambda *_: 0])}
NGRAMS = "`features` (NoRepeatedNgrams(size=2),), got ()."
ALLOWED = {"prefix_allowed_tokens_fn": lambda *_: [7]}
PREFIX = {"decoder_input_ids": torch.tensor([[1, 5]])}
POSITIONS = {"position_ids": torch.tensor([[3, 4, 5], [0, 1, 2]])}
OTHER_END = "without other tokens that end a text."
REFUSED = {
    "beams": (SOURCE, {"num_beams": 3}, "`num_beams` 3, got 4."),
    "penalty": (SOURCE, PENALTY, "`length_penalty_type` 'power', got 'wu'."),
    "n-grams": (SOURCE, {"no_repeat_ngram_size": 2}, NGRAMS),
    "sampling": (SOURCE, {"do_sample": True, "num_beams": 1}, "`num_beams` 1, got 4."),
    "a processor": (
        SOURCE,
        {"repetition_penalty": 1.3},
        "without `RepetitionPenaltyLogitsProcessor`.",
    ),
    "a given processor": (SOURCE, PROCESSOR, "without `function`."),
    "an allowed set": (SOURCE, ALLOWED, "without `PrefixConstrained"),
    "a minimum": (SOURCE, {"min_length": 3}, "without `MinLengthLogitsProcessor`."),
    "a time": (SOURCE, {"max_time": 9.0}, "without `MaxTimeCriteria`."),
    "a given criterion": (SOURCE, stopped_by(MaxTimeCriteria(9.0)), "without `MaxTimeCriteria`."),
    "another end": (SOURCE, stopped_by(EosTokenCriteria([7])), OTHER_END),
    "an output": (SOURCE, {"return_dict_in_generate": True}, "without `return_dict_in_generate`."),
    "a prefix": (SOURCE, PREFIX, "without `decoder_input_ids`."),
    "a gap": (PROMPT, masked_by([1, 0, 1]), NO_GAP),
    "padding": (PROMPT, masked_by([1, 1, 0]), NO_GAP),
    "no prompt": (PROMPT, masked_by([0, 0, 0]), NO_GAP),
    "positions": (PROMPT, POSITIONS, "without other `position_ids`."),
    "embeddings": (PROMPT, {"inputs_embeds": torch.ones(2, 3, 16)}, "without `inputs_embeds`."),
    "a cache": (PROMPT, {"cache": CACHE}, "without a `cache` that is not empty."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_engine_refuses_calls_for_another_search(case):
    inputs, options, words = REFUSED[case]
    model = model_of() if inputs is SOURCE else tiny_causal_lm(**FIELDS)
    engine = Engine(model, compile=False, eos_token_id=EOS, max_new_tokens=4)
    call = inputs | {"max_new_tokens": 4} | options
    if inputs is PROMPT:
        call = inputs | {"max_new_tokens": 4} | OPTIONS | options
    if options.get("cache") is CACHE:
        call["cache"] = model.model(PROMPT["input_ids"][:, :2], use_cache=True)[1]
    with pytest.raises(ValueError, match=re.escape(words)):
        model.generate(**call, custom_generate=engine)


def test_engine_refuses_another_model_and_long_texts():
    model = model_of(1, position_embedding_type="learned", max_position_embeddings=12)
    engine = Engine(model, compile=False)
    message = "must be an engine of this model, got one of another model"
    with pytest.raises(ValueError, match=message):
        model_of().generate(sources(3, 7), custom_generate=engine)
    message = "texts that are longer than the model's 12 positions"
    with pytest.raises(ValueError, match=message):
        model.generate(sources(3, 7), max_new_tokens=30, custom_generate=engine)
