"""The options of a request: their resolution from four levels, their checks, and their flags and
JSON schema.
"""

import pytest
from transformers import GenerationConfig

from vanilla_transformer.decoding.options import OptionError, TranslationOptions, options_of

LENGTHS = {"max_new_tokens_beyond_source": 50, "length_penalty": 0.6}
PAPER = GenerationConfig(num_beams=4, eos_token_id=2, **LENGTHS)


def resolve(call=None, defaults=None, config=PAPER):
    return TranslationOptions.resolve(call or {}, defaults or {}, config)


GIVEN = GenerationConfig(num_beams=3, length_penalty=0.5)


@pytest.mark.parametrize(
    ("call", "defaults", "beams"),
    [
        ({}, {}, 4),
        ({}, {"num_beams": 5}, 5),
        ({"num_beams": 2}, {"num_beams": 5}, 2),
        ({"num_beams": None}, {"num_beams": 5}, 5),
        ({"generation_config": GIVEN}, {"num_beams": 5, "seed": 3}, 3),
        ({"generation_config": GIVEN, "num_beams": 2}, {}, 2),
        ({}, {"generation_config": GIVEN}, 3),
    ],
    ids=str,
)
def test_resolve_takes_the_value_closest_to_the_call(call, defaults, beams):
    options = resolve(call, defaults)
    is_replaced = "generation_config" in {**call, **defaults}
    assert options.num_beams == beams
    assert options.length_penalty == (0.5 if is_replaced else 0.6)
    assert options.seed is None


@pytest.mark.parametrize(
    ("call", "limits"),
    [
        ({}, (50, None)),
        ({"max_new_tokens": 5}, (None, 5)),
        ({"max_new_tokens": 5, "max_new_tokens_beyond_source": 3}, (None, 5)),
        ({"max_new_tokens_beyond_source": 0}, (0, None)),
        ({"max_length": 7}, (None, None)),
        ({"max_length": 7, "max_new_tokens_beyond_source": 3}, (3, None)),
    ],
    ids=str,
)
def test_resolve_lets_the_closest_limit_of_the_length_decide(call, limits):
    options = resolve(call)
    assert (options.max_new_tokens_beyond_source, options.max_new_tokens) == limits
    assert options.max_length == call.get("max_length", PAPER.max_length)


def test_resolve_gives_sampling_the_defaults_of_generate():
    assert resolve().top_k is None
    assert resolve({"do_sample": True}).top_k == 50
    assert resolve({"do_sample": True, "top_k": 0}).top_k == 0
    assert resolve().override(do_sample=True).top_k == 50


PENALTY = {"repetition_penalty": 1.2}


@pytest.mark.parametrize(
    ("call", "config", "library"),
    [
        ({"num_return_sequences": 2, "output_scores": False, "use_cache": False}, {}, {}),
        ({"num_beam": None}, {}, {"num_beam": None}),  # it may be misspelled
        ({"do_smaple": False}, {}, {"do_smaple": False}),
        (PENALTY | {"nonsense": 0}, {}, PENALTY | {"nonsense": 0}),
        ({}, PENALTY, PENALTY),
        ({}, {"typical_p": 0.5}, {}),
        ({"do_sample": True}, {"typical_p": 0.5}, {"typical_p": 0.5}),
    ],
    ids=str,
)
def test_resolve_leaves_other_options_to_the_library(call, config, library):
    assert resolve(call, config=GenerationConfig(**config)).library == library


def test_generate_kwargs_hold_what_the_call_gives_generate():
    config = GenerationConfig()
    kept = {"num_beams": 2, "min_length": 4, "generation_config": config}
    options = resolve(kept | {"seed": 3, "return_scores": True})
    assert options.generate_kwargs == kept
    changed = options.override(num_return_sequences=2, return_tokens=True)
    assert changed.generate_kwargs == kept | {"num_return_sequences": 2}
    assert changed.return_tokens and changed.num_return_sequences == 2


BEYOND = "`rerank_length_weight` must be a number in [-100, 100], got nan."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"num_beams": True}, "`num_beams` must be an integer from 1 to 500, got True."),
        ({"rerank_length_weight": float("nan")}, BEYOND),
    ],
    ids=str,
)
def test_resolve_refuses_values_at_the_bounds(call, message):
    with pytest.raises(OptionError) as error:
        resolve(call)
    assert str(error.value) == message


def test_every_option_has_help():
    assert all(option.description.endswith(".") for option in options_of().values())


def test_options_are_refused_once_with_all_mistakes():
    with pytest.raises(OptionError) as refused:
        TranslationOptions.resolve({"num_beams": 0, "protect": 2, "term_mode": "none"})
    assert str(refused.value).splitlines() == [
        "`num_beams` must be an integer from 1 to 500, got 0.",
        "`term_mode` must be one of 'soft', 'hard', 'exact', got 'none'.",
        "`protect` must be true or false, got 2.",
    ]


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"do_sample": True, "seed": 3},
        {"num_beams": 2, "protect": False, "return_scores": True},
        {"glossary": [("dog", "Hund")], "term_mode": "soft", "repetition_penalty": 1.5},
    ],
    ids=str,
)
def test_options_give_back_what_the_call_gave(call):
    """Values of a generation config stay out: the next pipeline has its own."""
    options = resolve(call)
    arguments = options.given
    assert arguments.keys() == call.keys()
    again = resolve(arguments)
    assert again == options and hash(again) == hash(options)


def test_override_keeps_what_the_call_did_not_give():
    """A default of ours must not look like the wish of the call."""
    options = TranslationOptions.resolve({"do_sample": True}).override(num_beams=1)
    assert options.given == {"do_sample": True, "num_beams": 1}


@pytest.mark.parametrize(
    ("call", "beams"),
    [
        ({}, None),
        ({"num_return_sequences": 6}, 6),
        ({"constraints": ["Hund"]}, 4),
        ({"glossary": [("dog", "Hund")], "term_mode": "soft"}, None),
        ({"glossary": [("dog", "Hund")], "term_mode": "hard"}, 4),
        ({"do_sample": True}, 1),
        ({"mbr": "chrf", "constraints": ["Hund"]}, None),
    ],
    ids=str,
)
def test_requests_without_a_beam_size_get_the_one_they_need(call, beams):
    assert TranslationOptions.resolve(call).choose_beams(usual=2).num_beams == beams
