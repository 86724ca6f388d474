"""Random models, sources and options for the decoding engine, and the answers of the library's own
search to them.
"""

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tests.rounding import close_to
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    paper_generation_config,
)
from vanilla_transformer.decoding.engine.engine import Engine

PAD, START, EOS = 0, 1, 2
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
    lengths = [draw.randint(shortest, longest) for _ in range(draw.randint(2, 4))] + [
        draw.randint(shortest, 3)
    ]
    draw.shuffle(lengths)
    sources = [
        [draw.randrange(5, model.config.vocab_size) for _ in range(length)] + [EOS]
        for length in lengths
    ]
    return Case(
        model, sources, draw.choice([1, 2, 3, 9]), options, draw.randint(1, options["num_beams"])
    )


def _options(draw: random.Random) -> dict[str, Any]:
    beams = draw.choice([1, 1, 2, 3, 4, 5, 6])
    options = {"num_beams": beams, "length_penalty_type": draw.choice(["wu", "power"])}
    options["length_penalty"] = draw.choice([-0.5, 0.0, 0.6, 1.0, 2.0])
    options["early_stopping"] = draw.choice([True, False, "never"])
    options["min_new_tokens"] = draw.choice([0, 0, 1, 4])
    limits = {
        "max_new_tokens": draw.randint(1, 18),
        "max_new_tokens_beyond_source": draw.randint(0, 6),
    }
    limits["max_length"] = draw.randint(2, 18)
    limit = draw.choice([*limits])
    options[limit] = limits[limit]
    if draw.random() < 0.3:
        options["eos_token_id"] = [EOS, 4]
    return options


def _model(draw: random.Random, seed: int, options: dict[str, Any]) -> Any:
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
    model.generation_config = paper_generation_config(
        PAD, EOS, START, max_new_tokens_beyond_source=margin
    )
    return model


def hypotheses_of_library(case: Case, source: list[int]) -> list[LibraryHypothesis]:
    """Return the hypotheses that the library's own search finds for one source; without scores in
    greedy search.
    """
    ids, count = torch.tensor([source]), case.num_return_sequences
    start = 1 if case.model.config.is_encoder_decoder else len(source)  # of the new tokens
    found = case.model.generate(
        ids,
        **case.options,
        num_return_sequences=count,
        return_dict_in_generate=True,
        output_scores=True,
    )
    if case.options["num_beams"] == 1:
        return [LibraryHypothesis(found.sequences[0, start:].tolist(), float("nan"))]
    lengths = found.beam_indices.ge(0).sum(dim=1).tolist()
    rows = zip(found.sequences.tolist(), lengths, found.sequences_scores.tolist(), strict=True)
    return [LibraryHypothesis(row[start : start + length], score) for row, length, score in rows]


def assert_engine_gives_hypotheses_of_library(case: Case) -> None:
    """Translate all sources of a case at once, and compare with the library, which gets them one by
    one.
    """
    engine = Engine(case.model, slots=case.slots, compile=False, **case.options)
    found = engine.decode(case.sources, case.num_return_sequences)
    for source, ours in zip(case.sources, found, strict=True):
        expected = hypotheses_of_library(case, source)
        assert len(ours) == len(expected)
        for our, their in zip(ours, expected, strict=True):
            # Hypotheses whose scores are equal but for rounding may come in any order; greedy
            # search has no scores.
            tie = their.score < IMPOSSIBLE or our.score == close_to(their.score)
            assert our.tokens == their.tokens or tie
        if case.options["num_beams"] > 1:
            scores = [[each.score for each in hypotheses] for hypotheses in (ours, expected)]
            assert scores[0] == close_to(scores[1])
