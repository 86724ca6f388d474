"""`generate()` of decoder-only models by the engine: the tokens of the library, and which requests it takes."""

import random
import warnings

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList, MaxLengthCriteria, TextStreamer
from transformers.generation import EosTokenCriteria

from tests.engine_cases import EOS, IMPOSSIBLE, PAD
from tests.long_engine_cases import random_long_prompt_case, random_prompt_case
from tests.sweeps import sample
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm
from tests.tiny_engines import eager_steps_for_compiled_ones
from vanilla_transformer import VanillaTransformerForCausalLM
from vanilla_transformer.decoding.engine.engine import Engine

FIELDS = {"vocab_size": 40, "init_std": 0.4, "decoder_layers": 2, "lm_head_bias": True}
OPTIONS = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": EOS, "pad_token_id": PAD}
PROMPTS = [[7, 8, 9, 10], [9, 8], [11]]


def left_padded(prompts, pad=PAD):
    """Return prompts `(B, L)`, and their mask."""
    width = max(map(len, prompts))
    tokens = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return tokens, mask


def generate_by_library(model, *args, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VanillaTransformerForCausalLM, "fast_search", None)
        torch.manual_seed(0)
        return model.generate(*args, **options)


def assert_generate_gives_tokens_of_library(model, *args, **options):
    expected = generate_by_library(model, *args, **options)
    torch.manual_seed(0)
    found = model.generate(*args, **options)
    assert torch.equal(getattr(found, "sequences", found), getattr(expected, "sequences", expected))


@pytest.fixture
def decoded(monkeypatch):
    """Let eager steps stand for compiled ones, and record the prompts that engines continue."""
    calls, continue_prompts = [], Engine.continue_prompts

    def recorded(engine, prompts, *arguments):
        calls.append(prompts)
        return continue_prompts(engine, prompts, *arguments)

    monkeypatch.setattr(Engine, "continue_prompts", recorded)
    with eager_steps_for_compiled_ones():
        yield calls


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("random_case", [random_prompt_case, random_long_prompt_case])
@pytest.mark.parametrize("first", sample(range(0, 60, 10), 0))
def test_generate_of_prompts_gives_tokens_of_library(decoded, random_case, first):
    for seed in range(first, first + 10):
        case, draw = random_case(seed), random.Random(seed)
        sources = [[*source, EOS] for source in case.sources] if draw.random() < 0.2 else case.sources
        pad = draw.choice([PAD, 3, None])
        tokens, mask = left_padded(sources, PAD if pad is None else pad)
        options = case.options | {"pad_token_id": pad, "num_return_sequences": case.num_return_sequences}
        options["eos_token_id"] = options.get("eos_token_id", EOS)
        if "max_length" in options:
            options["max_length"] += 1  # for the EOS
        if pad is None or draw.random() < 0.5:
            options["attention_mask"] = mask
        expected = generate_by_library(case.model, tokens, **options, return_dict_in_generate=True, output_scores=True)
        scores = expected.get("sequences_scores")
        found = case.model.generate(tokens, **options)
        # The scores of hypotheses without a possible continuation are equal, and any of them may be returned.
        if scores is None or (scores > IMPOSSIBLE).all():
            assert torch.equal(found, expected.sequences)
    assert len(decoded) > 2


def linear_attention_model():
    return tiny_long_causal_lm(**FIELDS, layer_types="linear_attention", position_embedding_type="learned")


def reversible_model():
    return tiny_long_causal_lm(**FIELDS, layer_types="full_attention", reversible=True, normalize_before=True)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(
    "build", [lambda: tiny_causal_lm(**FIELDS), linear_attention_model, reversible_model], ids=["", "linear", "rev"]
)
def test_generate_continues_padded_prompts_by_the_engine(decoded, build, beams):
    model, (tokens, mask) = build(), left_padded(PROMPTS)
    options = OPTIONS | {"num_beams": beams, "num_return_sequences": min(beams, 3)}
    assert_generate_gives_tokens_of_library(model, tokens, attention_mask=mask, **options)
    assert_generate_gives_tokens_of_library(model, input_ids=tokens, **options)
    assert decoded == [PROMPTS] * 2


def test_generate_by_the_engine_reads_the_eos_that_the_library_reads(decoded):
    model = tiny_causal_lm(**FIELDS)
    some, every = [[7, 8, EOS], [9, 8]], [[7, 8, EOS], [9, EOS, EOS], [8, EOS]]
    assert_generate_gives_tokens_of_library(model, left_padded(some)[0], **OPTIONS)
    assert_generate_gives_tokens_of_library(model, left_padded(every)[0], **OPTIONS)
    assert decoded == [some, [prompt[:-1] for prompt in every]]


@pytest.mark.parametrize("eos", [EOS, [4, EOS]])
def test_generate_by_the_engine_reads_padding_that_is_eos_without_a_mask(decoded, eos):
    model, tokens = tiny_causal_lm(**FIELDS), torch.tensor([[EOS, EOS, 7, 8], [9, 8, 7, 6]])
    assert_generate_gives_tokens_of_library(model, tokens, **OPTIONS | {"pad_token_id": EOS, "eos_token_id": eos})
    assert decoded == [tokens.tolist()]


def test_generate_of_lsh_models_uses_the_engine(decoded):
    model = tiny_long_causal_lm(**FIELDS, layer_types="lsh_attention", lsh_attn_chunk_length=2)
    assert_generate_gives_tokens_of_library(model, torch.tensor([[7, 8, 9], [9, 8, 7]]), **OPTIONS)
    assert_generate_gives_tokens_of_library(model, left_padded(PROMPTS)[0], **OPTIONS)
    assert decoded == [[[7, 8, 9], [9, 8, 7]], PROMPTS]


def test_generate_by_the_engine_follows_the_generation_config_of_a_call(decoded):
    model, config = tiny_causal_lm(**FIELDS), GenerationConfig(**OPTIONS, num_beams=3)
    assert_generate_gives_tokens_of_library(model, left_padded(PROMPTS)[0], config)
    assert len(decoded) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"attention_mask": torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]])},
        {"attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])},
        {"attention_mask": torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]])},
        {"attention_mask": torch.tensor([[2, 2, 2, 2], [1, 1, 1, 1]])},
        {"position_ids": torch.tensor([[3, 4, 5, 6], [0, 1, 2, 3]])},
        {"do_sample": True},
        {"repetition_penalty": 1.3},
        {"use_cache": False},
        {"return_dict_in_generate": True, "output_scores": True},
        {"logits_processor": LogitsProcessorList([lambda ids, scores: -scores])},
        {"stopping_criteria": [MaxLengthCriteria(5)]},
        {"stopping_criteria": [EosTokenCriteria(torch.arange(20))]},
        {"prefix_allowed_tokens_fn": lambda row, ids: [7, 8]},
    ],
    ids=lambda options: ", ".join(options),
)
def test_generate_leaves_other_requests_for_prompts_to_the_library(decoded, options):
    tokens = torch.tensor([[7, 8, 9, 10], [10, 9, 8, 7]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_generate_gives_tokens_of_library(tiny_causal_lm(**FIELDS), tokens, **OPTIONS | options)
    assert decoded == []


def test_generate_leaves_positional_processors_and_streamers_to_the_library(decoded, capsys):
    model, tokens = tiny_causal_lm(**FIELDS), torch.tensor([[7, 8, 9]])
    negate = LogitsProcessorList([lambda ids, scores: -scores])
    assert_generate_gives_tokens_of_library(model, tokens, GenerationConfig(**OPTIONS), negate)

    class Words:
        def decode(self, ids, **options):
            return " ".join(map(str, torch.tensor(ids).flatten().tolist())) + "\n"

    assert_generate_gives_tokens_of_library(model, tokens, streamer=TextStreamer(Words()), **OPTIONS)
    assert decoded == [] and capsys.readouterr().out


def test_generate_leaves_given_caches_and_embeddings_to_the_library(decoded):
    model, tokens = tiny_causal_lm(**FIELDS), torch.tensor([[7, 8, 9]])
    expected = generate_by_library(model, tokens, **OPTIONS)
    cache = model.model.create_cache()
    assert torch.equal(model.generate(tokens, cache=cache, **OPTIONS), expected)
    assert cache.get_seq_length() > 0
    embeddings = model.model.embed_tokens(tokens)
    assert torch.equal(model.generate(inputs_embeds=embeddings, **OPTIONS), expected[:, 3:])
    assert decoded == []


def test_generate_leaves_prompts_to_the_library_if_nothing_ends_them(decoded):
    model = tiny_causal_lm(**FIELDS)
    model.generation_config.eos_token_id = None
    assert_generate_gives_tokens_of_library(model, torch.tensor([[7, 8, 9]]), **OPTIONS | {"eos_token_id": None})
    assert decoded == []


@pytest.mark.parametrize("options", [{"length_penalty_type": "wu"}, {"max_new_tokens_beyond_source": 3}])
def test_generate_ignores_parameters_of_translation_models_in_the_config_of_a_language_model(decoded, options):
    model = tiny_causal_lm(**FIELDS)
    model.generation_config.update(allow_custom_entries=True, **options)
    assert_generate_gives_tokens_of_library(model, torch.tensor([[7, 8, 9]]), num_beams=3, **OPTIONS)
    assert decoded == []


def test_generate_leaves_prompts_beyond_learned_positions_to_the_library(decoded):
    model = tiny_causal_lm(**FIELDS, position_embedding_type="learned", max_position_embeddings=8)
    with torch.no_grad():
        model.lm_head.bias[EOS] = -100.0
    with pytest.raises(ValueError, match="longer than `max_position_embeddings`"):
        model.generate(torch.tensor([[7, 8, 9]]), **OPTIONS | {"max_new_tokens": 9})
    assert_generate_gives_tokens_of_library(model, torch.tensor([[7, 8, 9]]), **OPTIONS | {"max_new_tokens": 4})
    assert decoded == [[[7, 8, 9]]]
