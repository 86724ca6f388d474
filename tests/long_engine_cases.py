"""Random decoder-only models and models for long sequences, for the tests of the decoding
engine.
"""

import random
from typing import Any

import torch

from tests.engine_cases import EOS, PAD, START, Case
from tests.tiny import tiny_decoder_config, tiny_long_config, tiny_long_decoder_config
from vanilla_transformer import (
    VanillaTransformerForCausalLM,
    VanillaTransformerLongForCausalLM,
    VanillaTransformerLongForConditionalGeneration,
    paper_generation_config,
)

_CROSS_ATTENTIONS = ["full_attention", "linear_attention"]


def random_prompt_case(seed: int) -> Case:
    """Draw a decoder-only model and prompts; the same seed draws the same case."""
    draw = random.Random(seed)
    config = tiny_decoder_config(**_fields(draw))
    sources = _sources(draw, config.vocab_size)
    options = _options(draw, min_length=max(map(len, sources)))
    return _case(draw, seed, VanillaTransformerForCausalLM(config), sources, options)


def random_long_case(seed: int) -> Case:
    """Draw an encoder-decoder for long sequences and sources."""
    draw = random.Random(seed)
    fields = (
        _fields(draw)
        | _long_fields(draw)
        | {"cross_attention_type": draw.choice(_CROSS_ATTENTIONS)}
    )
    fields["source_eos"] = draw.random() < 0.7
    model = VanillaTransformerLongForConditionalGeneration(tiny_long_config(**fields))
    model.generation_config = paper_generation_config(PAD, EOS, START)
    sources = _sources(draw, model.config.vocab_size)
    options = _options(draw, min_length=1) | {"length_penalty_type": draw.choice(["wu", "power"])}
    return _case(draw, seed, model, sources, options)


def random_long_prompt_case(seed: int) -> Case:
    """Draw a decoder-only model for long sequences and prompts."""
    draw = random.Random(seed)
    model = VanillaTransformerLongForCausalLM(
        tiny_long_decoder_config(**_fields(draw) | _long_fields(draw))
    )
    sources = _sources(draw, model.config.vocab_size)
    return _case(draw, seed, model, sources, _options(draw, min_length=max(map(len, sources))))


def _long_fields(draw: random.Random) -> dict[str, Any]:
    """Draw the fields of a configuration that only models for long sequences have."""
    layer_type = draw.choice(["full_attention", *["linear_attention", "lsh_attention"] * 2])
    fields: dict[str, Any] = {"layer_types": layer_type}
    if layer_type == "lsh_attention":
        fields |= {"num_hashes": draw.choice([1, 3]), "num_buckets": draw.choice([1, 2, 4])}
        fields |= {
            "lsh_attn_chunk_length": draw.choice([2, 8, 64]),
            "hash_seed": draw.choice([0, 7]),
        }
    return fields | ({"reversible": True, "normalize_before": True} if draw.random() < 0.4 else {})


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


def _options(draw: random.Random, min_length: int) -> dict[str, Any]:
    """Draw options of the library's own search, with a `max_length` of more than `min_length`."""
    options: dict[str, Any] = {"num_beams": draw.choice([1, 1, 2, 3, 5])}
    options["length_penalty"] = draw.choice([-0.5, 0.0, 0.6, 1.0, 2.0])
    options["early_stopping"] = draw.choice([True, False, "never"])
    options["min_new_tokens"] = draw.choice([0, 0, 1, 4])
    limits = {"max_new_tokens": draw.randint(1, 18), "max_length": min_length + draw.randint(1, 18)}
    limit = draw.choice([*limits])
    return (
        options
        | {limit: limits[limit]}
        | ({"eos_token_id": [EOS, 4]} if draw.random() < 0.3 else {})
    )


def _sources(draw: random.Random, vocab_size: int) -> list[list[int]]:
    """Draw sources of many lengths, some of which end in EOS."""
    longest = draw.choice([3, 12, 36])
    lengths = [draw.randint(1, longest) for _ in range(draw.randint(2, 4))] + [1, 2]
    draw.shuffle(lengths)
    sources = [[draw.randrange(5, vocab_size) for _ in range(length)] for length in lengths]
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
    return Case(
        model.eval(),
        sources,
        draw.choice([1, 2, 3, 9]),
        options,
        draw.randint(1, options["num_beams"]),
    )
