"""Random models, sources and options for the decoding engine and `generate()`, and the answers of the
library's own search to them.
"""

import random
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from hypothesis import assume
from hypothesis import strategies as st

from tests.closeness import close_to
from tests.tiny import tiny_config, tiny_decoder_config, tiny_long_config, tiny_long_decoder_config
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerLongForCausalLM,
    VanillaTransformerLongForConditionalGeneration,
    paper_generation_config,
)
from vanilla_transformer.decoding.engine.engine import Engine

PAD, START, EOS = 0, 1, 2
WITH_SCORES = {"return_dict_in_generate": True, "output_scores": True}
IMPOSSIBLE = -1.0e8  # the library's scores of hypotheses without a possible continuation are lower


@dataclass
class Case:
    """A model, sources, the number of slots, the options of the engine and the number of
    hypotheses.
    """

    model: Any
    sources: list[list[int]]
    slots: int
    options: dict[str, Any]
    num_return_sequences: int


class LibraryHypothesis(NamedTuple):
    """The tokens and the score that the library's own search returns."""

    tokens: list[int]
    score: float


def random_case(seed: int) -> Case:
    """Draw a case; the same seed draws the same case."""
    draw = random.Random(seed)
    options = _options(draw)
    model = _model(draw, seed, options)
    longest = draw.choice([3, 12, 36])
    # The library attends to nothing if a source has only the EOS that the model must not see.
    shortest = 0 if model.config.source_eos else 1
    lengths = [draw.randint(shortest, longest) for _ in range(draw.randint(2, 4))]
    lengths.append(draw.randint(shortest, 3))
    draw.shuffle(lengths)
    sources = [[*_tokens(draw, length, model.config.vocab_size), EOS] for length in lengths]
    slots = draw.choice([1, 2, 3, 9])
    return Case(model, sources, slots, options, draw.randint(1, options["num_beams"]))


def _tokens(draw: random.Random, count: int, vocab_size: int) -> list[int]:
    return [draw.randrange(5, vocab_size) for _ in range(count)]


def _options(draw: random.Random) -> dict[str, Any]:
    beams = draw.choice([1, 1, 2, 3, 4, 5, 6])
    options = {"num_beams": beams, "length_penalty_type": draw.choice(["wu", "power"])}
    options["length_penalty"] = draw.choice([-0.5, 0.0, 0.6, 1.0, 2.0])
    options["early_stopping"] = draw.choice([True, False, "never"])
    options["min_new_tokens"] = draw.choice([0, 0, 1, 4])
    limits = {"max_new_tokens": draw.randint(1, 18)}
    limits["max_new_tokens_beyond_source"] = draw.randint(0, 6)
    limits["max_length"] = draw.randint(2, 18)
    limit = draw.choice([*limits])
    options[limit] = limits[limit]
    if draw.random() < 0.3:
        options["eos_token_id"] = [EOS, 4]
    return options


def _model(
    draw: random.Random, seed: int, options: dict[str, Any]
) -> VanillaTransformerForConditionalGeneration:
    vocab_size = draw.choice([17, 40, 101])
    separate = draw.random() < 0.3
    config = VanillaTransformerConfig(
        vocab_size=vocab_size,
        decoder_vocab_size=vocab_size + 6 if separate else vocab_size,
        share_encoder_decoder_embeddings=not separate,
        tie_word_embeddings=draw.random() < 0.6,
        d_model=16,
        encoder_layers=1,
        decoder_layers=draw.choice([1, 2]),
        encoder_attention_heads=2,
        decoder_attention_heads=draw.choice([1, 4]),
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        activation_function=draw.choice(["relu", "gelu", "silu", "gelu_new"]),
        attention_bias=draw.random() < 0.5,
        lm_head_bias=draw.random() < 0.7,
        normalize_before=draw.random() < 0.5,
        scale_embedding=draw.random() < 0.7,
        position_embedding_type=draw.choice(["sinusoidal", "sinusoidal", "learned"]),
        sinusoid_layout=draw.choice(["interleaved", "halves"]),
        max_position_embeddings=draw.choice([40, 64]),
        chunk_size_feed_forward=draw.choice([0, 0, 3]),
        source_eos=draw.random() < 0.7,
    )
    torch.manual_seed(seed)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, draw.choice([0.2, 0.4]))
        if config.lm_head_bias:
            model.lm_head.bias[[EOS, 4]] = draw.choice([0.0, 2.0, 4.0, 8.0])
    margin = draw.randint(0, 6)
    limit = {"max_new_tokens_beyond_source": margin}
    model.generation_config = paper_generation_config(PAD, EOS, START, **limit)
    return model


def hypotheses_of_library(case: Case, source: list[int]) -> list[LibraryHypothesis]:
    """Return the hypotheses that the library's own search finds for one source; without scores in
    greedy search.
    """
    ids, count = torch.tensor([source]), case.num_return_sequences
    start = 1 if case.model.config.is_encoder_decoder else len(source)  # of the new tokens
    options = case.options | {"num_return_sequences": count}
    output = case.model.generate(ids, **options, **WITH_SCORES)
    if case.options["num_beams"] == 1:
        return [LibraryHypothesis(output.sequences[0, start:].tolist(), float("nan"))]
    lengths = output.beam_indices.ge(0).sum(dim=1).tolist()
    scores = output.sequences_scores.tolist()
    hypotheses = []
    for row, length, score in zip(output.sequences.tolist(), lengths, scores, strict=True):
        hypotheses.append(LibraryHypothesis(row[start : start + length], score))
    return hypotheses


def assert_engine_gives_hypotheses_of_library(case: Case) -> None:
    """Translate all sources of a case at once, and compare with the library, which gets them one by
    one.
    """
    engine = Engine(case.model, slots=case.slots, compile=False, **case.options)
    rows = engine.decode(case.sources, case.num_return_sequences)
    for source, ours in zip(case.sources, rows, strict=True):
        expected = hypotheses_of_library(case, source)
        assert len(ours) == len(expected)
        for our, their in zip(ours, expected, strict=True):
            # Hypotheses whose scores are equal but for rounding may come in any order; greedy
            # search has no scores.
            tie = their.score < IMPOSSIBLE or our.score == close_to(their.score)
            assert our.tokens == their.tokens or tie
        if case.options["num_beams"] > 1:
            scores = [hypothesis.score for hypothesis in ours]
            assert scores == close_to([hypothesis.score for hypothesis in expected])


_CROSS_ATTENTIONS = ["full_attention", "linear_attention"]


def random_prompt_case(seed: int) -> Case:
    """Draw a decoder-only model and prompts; the same seed draws the same case."""
    draw = random.Random(seed)
    config = tiny_decoder_config(**_fields(draw))
    sources = _sources(draw, config.vocab_size)
    options = _long_options(draw, min_length=max(map(len, sources)))
    return _case(draw, seed, VanillaTransformerForCausalLM(config), sources, options)


def random_long_case(seed: int) -> Case:
    """Draw an encoder-decoder for long sequences and sources."""
    draw = random.Random(seed)
    fields = _fields(draw) | _long_fields(draw)
    fields["cross_attention_type"] = draw.choice(_CROSS_ATTENTIONS)
    fields["source_eos"] = draw.random() < 0.7
    model = VanillaTransformerLongForConditionalGeneration(tiny_long_config(**fields))
    model.generation_config = paper_generation_config(PAD, EOS, START)
    sources = _sources(draw, model.config.vocab_size)
    options = _long_options(draw, min_length=1)
    options["length_penalty_type"] = draw.choice(["wu", "power"])
    return _case(draw, seed, model, sources, options)


def random_long_prompt_case(seed: int) -> Case:
    """Draw a decoder-only model for long sequences and prompts."""
    draw = random.Random(seed)
    config = tiny_long_decoder_config(**_fields(draw) | _long_fields(draw))
    model = VanillaTransformerLongForCausalLM(config)
    sources = _sources(draw, config.vocab_size)
    options = _long_options(draw, min_length=max(map(len, sources)))
    return _case(draw, seed, model, sources, options)


def _long_fields(draw: random.Random) -> dict[str, Any]:
    """Draw the fields of a configuration that only models for long sequences have."""
    layer_type = draw.choice(["full_attention", *["linear_attention", "lsh_attention"] * 2])
    fields: dict[str, Any] = {"layer_types": layer_type}
    if layer_type == "lsh_attention":
        fields |= {"num_hashes": draw.choice([1, 3]), "num_buckets": draw.choice([1, 2, 4])}
        fields["lsh_attn_chunk_length"] = draw.choice([2, 8, 64])
        fields["hash_seed"] = draw.choice([0, 7])
    if draw.random() < 0.4:
        fields |= {"reversible": True, "normalize_before": True}
    return fields


def _fields(draw: random.Random) -> dict[str, Any]:
    """Draw the fields of a configuration that all models have."""
    return {
        "vocab_size": draw.choice([17, 40, 101]),
        "tie_word_embeddings": draw.random() < 0.6,
        "decoder_layers": draw.choice([1, 2]),
        "decoder_attention_heads": draw.choice([1, 4]),
        "activation_function": draw.choice(["relu", "gelu", "silu"]),
        "attention_bias": draw.random() < 0.5,
        "lm_head_bias": draw.random() < 0.7,
        "normalize_before": draw.random() < 0.5,
        "scale_embedding": draw.random() < 0.7,
        "position_embedding_type": draw.choice(["sinusoidal", "sinusoidal", "learned"]),
        "sinusoid_layout": draw.choice(["interleaved", "halves"]),
        "max_position_embeddings": 64,
        "chunk_size_feed_forward": draw.choice([0, 0, 3]),
    }


def _long_options(draw: random.Random, min_length: int) -> dict[str, Any]:
    """Draw options of the library's own search, with a `max_length` of more than `min_length`."""
    options: dict[str, Any] = {"num_beams": draw.choice([1, 1, 2, 3, 5])}
    options["length_penalty"] = draw.choice([-0.5, 0.0, 0.6, 1.0, 2.0])
    options["early_stopping"] = draw.choice([True, False, "never"])
    options["min_new_tokens"] = draw.choice([0, 0, 1, 4])
    limits = {"max_new_tokens": draw.randint(1, 18)}
    limits["max_length"] = min_length + draw.randint(1, 18)
    limit = draw.choice([*limits])
    options[limit] = limits[limit]
    if draw.random() < 0.3:
        options["eos_token_id"] = [EOS, 4]
    return options


def _sources(draw: random.Random, vocab_size: int) -> list[list[int]]:
    """Draw sources of many lengths, some of which end in EOS."""
    longest = draw.choice([3, 12, 36])
    lengths = [draw.randint(1, longest) for _ in range(draw.randint(2, 4))] + [1, 2]
    draw.shuffle(lengths)
    sources = [_tokens(draw, length, vocab_size) for length in lengths]
    return [source + [EOS] * (draw.random() < 0.5) for source in sources]


@torch.no_grad()
def _case(
    draw: random.Random, seed: int, model: Any, sources: list[list[int]], options: dict[str, Any]
) -> Case:
    """Draw the weights, so that hypotheses differ and some of them end, and the rest of a case."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.normal_(0, draw.choice([0.2, 0.4]))
    if model.config.lm_head_bias:
        model.lm_head.bias[[EOS, 4]] = draw.choice([0.0, 2.0, 4.0, 8.0])
    slots = draw.choice([1, 2, 3, 9])
    return Case(model.eval(), sources, slots, options, draw.randint(1, options["num_beams"]))


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
    fields = {"vocab_size": 40, "init_std": 0.3, "decoder_layers": 2}
    config = tiny_config(**fields | changes)
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
        expected = model.generate(tokens, **options, **WITH_SCORES)
        scores = expected.get("sequences_scores")
        # The scores of hypotheses without a possible continuation are equal, and any of them may be
        # returned.
        assume(scores is None or (scores > IMPOSSIBLE).all())
        search = {name: value for name, value in options.items() if name != "pad_token_id"}
        engine = Engine(model, compile=False, **search)
        generated = model.generate(tokens, **options, custom_generate=engine)
        assert torch.equal(generated, expected.sequences)
