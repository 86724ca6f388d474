"""Every option of `generate()` changes its answer as the library's own search does, or is
refused.
"""

import numpy as np
import pytest
import torch
from transformers import CompileConfig, GenerationConfig, WatermarkingConfig

from tests.tiny import tiny_causal_lm, tiny_model, tiny_tokenizer
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.options import CONFIG, TranslationOptions, options_of

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 2], [10, 11, 2, 0, 0, 0]])
PLAIN = {"max_new_tokens": 8, "num_beams": 4}
PLAIN |= {"length_penalty_type": "power", "length_penalty": 1.0}
GREEDY = {"num_beams": 1}
SAMPLE = {"do_sample": True, "num_beams": 1, "top_k": 0}
ASSISTED = {"num_beams": 1, "max_new_tokens": 8}
# A value of each option that changes the answer or raises, and the further options that it needs.
CHANGING = {
    "max_length": (4, {"max_new_tokens": None}),
    "max_new_tokens": (3, {}),
    "min_length": (9, {"eos_token_id": [2, *range(60)]}),
    "min_new_tokens": (8, {"eos_token_id": [2, *range(60)]}),
    "early_stopping": (True, {"eos_token_id": [2, *range(3, 60)], "length_penalty": 5.0}),
    "max_time": (0.0, {}),
    "stop_strings": (["a"], {}),
    "do_sample": (True, GREEDY),
    "num_beams": (2, {"return_dict_in_generate": True, "output_scores": True}),
    "temperature": (5.0, SAMPLE),
    "top_k": (1, {"do_sample": True, "num_beams": 1}),
    "top_p": (0.01, SAMPLE),
    "min_p": (0.9, SAMPLE),
    "top_h": (0.1, SAMPLE),
    "typical_p": (0.01, SAMPLE),
    "epsilon_cutoff": (0.9, SAMPLE),
    "eta_cutoff": (0.9, SAMPLE),
    "repetition_penalty": (20.0, {}),
    "encoder_repetition_penalty": (50.0, {}),
    "length_penalty": (-5.0, {"eos_token_id": [2, *range(30)]}),
    "no_repeat_ngram_size": (1, {}),
    "bad_words_ids": ("first tokens", {}),
    "forced_bos_token_id": (7, {}),
    "forced_eos_token_id": (2, {}),
    "exponential_decay_length_penalty": ((1, 50.0), {}),
    "suppress_tokens": ("first tokens", {}),
    "begin_suppress_tokens": ("first tokens", {}),
    "sequence_bias": ({(7,): 50.0}, {}),
    "token_healing": (True, {}),
    "guidance_scale": (3.0, {}),
    "watermarking_config": (WatermarkingConfig(bias=9.0), {}),
    "num_return_sequences": (2, {}),
    "output_attentions": (True, {"return_dict_in_generate": True}),
    "output_hidden_states": (True, {"return_dict_in_generate": True}),
    "output_scores": (True, {"return_dict_in_generate": True}),
    "output_logits": (True, {"return_dict_in_generate": True}),
    "return_dict_in_generate": (True, {}),
    "pad_token_id": (11, {"eos_token_id": [2, *range(30)]}),
    "eos_token_id": ([2, *range(60)], {}),
    "encoder_no_repeat_ngram_size": (1, {"sequence_bias": {(5,): 99.0}}),
    "decoder_start_token_id": (9, {}),
    "assistant_early_exit": (1, GREEDY),
    "low_memory": (True, {"penalty_alpha": 0.5}),
    "penalty_alpha": (0.6, {"num_beams": 1, "top_k": 4}),
    "dola_layers": ("high", GREEDY),
    "constraints": ([object()], {}),
    "force_words_ids": ([[7]], {}),
    "max_matching_ngram_size": (-1, {"num_beams": 1, "prompt_lookup_num_tokens": 2}),
    "use_mtp": (True, GREEDY),
    "num_beam_groups": (2, {"diversity_penalty": 9.0}),
    "diversity_penalty": (9.0, {"num_beam_groups": 2}),
}
# How the library computes, not what; or what it does not read in this search.
SAME_ANSWER = {
    "use_cache": False,
    "cache_implementation": "static",
    "prompt_lookup_num_tokens": 2,
    "max_cache_len": 64,
    "cache_config": {},
    "renormalize_logits": True,
    "remove_invalid_values": True,
    "disable_compile": True,
    "compile_config": CompileConfig(),
    "prefill_chunk_size": 2,  # refused
    "bos_token_id": 7,  # the start symbol is given
    "is_assistant": True,
    "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.9,
    "assistant_lookbehind": 3,
    "target_lookbehind": 3,
    "assistant_ensemble_weight": 0.5,
    "speculation_type": "invented",
    "continuous_batching_config": None,
    "transformers_version": "5.0.0",
}


@pytest.fixture(scope="module")
def model():
    model = tiny_model(seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model


def answer(model, uses_engine, as_config=False, **options):
    """Return the answer of the pipeline's engine or of `generate()` as comparable values, or the
    error it raises.
    """
    options = PLAIN | options
    if as_config:
        config = {**vars(model.generation_config), "max_new_tokens_beyond_source": None}
        options = {"generation_config": GenerationConfig(**config | options)}
    torch.manual_seed(0)
    try:
        # The pipeline has further options, and the engine its own random numbers.
        if uses_engine and options.keys().isdisjoint(options_of().keys() - options_of(CONFIG)):
            resolved = TranslationOptions.resolve(options, {}, model.generation_config)
            if not resolved.do_sample:
                engine = EnginePool(model, compile=False).find(resolved)
                options |= {} if engine is None else {"custom_generate": engine}
        outputs = model.generate(SOURCE, **options)
    except Exception as error:
        return ValueError if isinstance(error, ValueError) else type(error)
    if isinstance(outputs, torch.Tensor):
        return outputs.tolist()
    fields = sorted(name for name in outputs if name != "cache")
    return {"sequences": outputs.sequences.tolist(), "fields": fields}


ANSWERS = {}  # of the module's model, with which many options are compared


def known_answer(model, uses_engine, as_config=False, **options):
    """Return `answer`, which is computed once."""
    call = repr((uses_engine, as_config, options))
    if call not in ANSWERS:
        ANSWERS[call] = answer(model, uses_engine, as_config, **options)
    return ANSWERS[call]


def option_and_further_ones(model, name):
    value, further = CHANGING[name]
    if value == "first tokens":
        first = sorted({row[1] for row in known_answer(model, False)})
        value = [[token] for token in first] if name == "bad_words_ids" else first
    return {name: value}, dict(further)


# One function reads the options of a generation config, so the others get a sample.
IN_CONFIG = [name for name in CHANGING if name in options_of(CONFIG)]
IN_CONFIG += ["repetition_penalty", "bad_words_ids", "min_length"]
WAYS = [(name, False) for name in CHANGING] + [(name, True) for name in IN_CONFIG]
KINDS = {False: "keyword", True: "config"}


@pytest.mark.parametrize(("name", "as_config"), WAYS, ids=lambda value: KINDS.get(value, value))
def test_option_of_the_library_changes_the_answer(model, name, as_config):
    """Compare with the library, unless the option is refused."""
    option, further = option_and_further_ones(model, name)
    ours = answer(model, True, as_config, **further, **option)
    expected = answer(model, False, as_config, **further, **option)
    assert ours == expected
    further.pop(name, None)
    without = known_answer(model, True, as_config, **further)
    assert isinstance(ours, type) or ours != without


@pytest.mark.parametrize("name", SAME_ANSWER)
def test_option_that_changes_no_answer_is_as_in_the_library(model, name):
    option = {name: SAME_ANSWER[name]}
    assert answer(model, True, **option) == answer(model, False, **option)


# The same values in the types of numpy and torch, and one token in a list; the library takes many
# of them.
VALUES = {
    "num_beams": (np.int64(4), np.int32(4), torch.tensor(4)),
    "do_sample": (np.bool_(False), torch.tensor(False)),
    "max_new_tokens": (np.int64(8), torch.tensor(8)),
    "length_penalty": (np.float64(1.0), 1, np.int64(1)),
    "forced_bos_token_id": (7, [7], np.int64(7), torch.tensor(7), torch.tensor([7])),
    "eos_token_id": (2, [2], np.int64(2), torch.tensor(2), np.array([2]), torch.tensor([2])),
    "decoder_start_token_id": (1, np.int64(1), torch.tensor(1)),
    "num_return_sequences": (1, np.int64(1)),
    "early_stopping": (False, np.bool_(False)),
}
SAME_VALUES = [(name, value) for name in VALUES for value in VALUES[name]]


@pytest.mark.parametrize(("name", "value"), SAME_VALUES)
def test_value_has_one_meaning_in_all_types(model, name, value):
    expected = known_answer(model, False, **{name: VALUES[name][0]})
    if name in ("num_beams", "do_sample", "max_new_tokens", "length_penalty"):
        expected = known_answer(model, True)
    assert isinstance(expected, list)
    assert answer(model, True, **{name: value}) == expected
    assert answer(model, True, as_config=True, **{name: value}) == expected


def test_more_than_one_first_token_is_decoded_by_the_library(model):
    option = {"forced_bos_token_id": [7, 8]}
    ours = answer(model, True, **option)
    assert ours == answer(model, False, **option) != known_answer(model, True)


@pytest.mark.parametrize("create", [tiny_model, tiny_causal_lm])
def test_prefill_chunk_size_is_refused(create):
    message = "`prefill_chunk_size` must be left out, since models read prompts at once, got 2"
    with pytest.raises(ValueError, match=message):
        create().generate(SOURCE, prefill_chunk_size=2)


def test_every_option_of_the_installed_library_is_tried():
    names = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert names <= CHANGING.keys() | SAME_ANSWER.keys() | options_of().keys()


# The package's options of `generate()`, with a value that changes the answer.
OWN = {
    "length_penalty_type": ("wu", {"eos_token_id": [2, *range(3, 60)]}),
    "max_new_tokens_beyond_source": (0, {"max_new_tokens": None}),
}


DECLARED = [name for name in options_of() if name not in CHANGING]


@pytest.mark.parametrize("name", DECLARED)
def test_declared_option_changes_the_answer_of_generate(model, name):
    """Change the answer, unless the option is refused."""
    value, further = OWN.get(name, ("anything", {}))
    ours = answer(model, True, **further, **{name: value})
    assert isinstance(ours, type) or ours != known_answer(model, True, **further)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("least", [2, 8, 9])
@pytest.mark.parametrize("last", [2, 7])
def test_forced_eos_ends_what_must_be_longer(model, beams, least, last):
    """The library forces the last token after it has forbidden EOS, and so does the engine."""
    options = {"num_beams": beams, "min_new_tokens": least, "forced_eos_token_id": last}
    expected = answer(model, uses_engine=False, **options)
    assert answer(model, uses_engine=True, **options) == expected
    assert all(row[8] == last for row in expected)


@pytest.mark.parametrize("create", [tiny_model, tiny_causal_lm])
@pytest.mark.parametrize("beams", [1, 4])
def test_stop_strings_end_a_text_given_its_tokenizer(create, beams):
    tokenizer = tiny_tokenizer()
    model = create(vocab_size=len(tokenizer))
    options = {"num_beams": beams, "max_new_tokens": 8}
    options |= {"eos_token_id": None, "early_stopping": True}
    plain = model.generate(SOURCE[:1], **options)[0]
    stop = tokenizer.decode(plain[-6])
    stopping = {"stop_strings": stop, "tokenizer": tokenizer}
    (ended,) = model.generate(SOURCE[:1], **options, **stopping)
    assert len(ended) < len(plain) and tokenizer.decode(ended).endswith(stop)
