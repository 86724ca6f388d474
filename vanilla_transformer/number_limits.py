"""The largest numbers that recipes, flags, requests and configurations may have, declared once by name."""

import math
from collections.abc import Mapping
from typing import Any

# Larger numbers would fill the memory or take hours before the first result. No use of them is known.
LIMITS = {
    "d_model": 2**16,
    "attention_key_dim": 2**16,
    "attention_value_dim": 2**16,
    "vocab_size": 10**7,
    "max_position_embeddings": 10**7,
    **{
        f"{side}{size}": limit
        for side in ("", "encoder_", "decoder_")
        for size, limit in (
            ("layers", 1_000),
            ("attention_heads", 2**16),
            ("ffn_dim", 10**6),
        )
    },
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "n_best", "alternatives"), 500),
    **dict.fromkeys(("max_new_tokens", "max_new_tokens_beyond_source", "max_length", "min_new_tokens"), 10_000),
    "no_repeat_ngram_size": 1_000,
    "length_penalty": 100,
    "mbr_samples": 10_000,
    "bootstrap_samples": 100_000,
    "batch_size": 100_000,
    "max_tokens": 10**7,
    "tokens_per_step": 10**7,
    "dataloader_num_workers": 256,
    "max_loaded": 10_000,
    "seed": 10**99,  # other rules limit the bits
}
_LARGEST = 10**12


def limit_of(name: str) -> int:
    """Return the largest value of a number with this name."""
    return LIMITS.get(name, _LARGEST)


def check_number(name: str, value: Any) -> None:
    """Check a number, or the numbers of a list. Other values pass.

    Raises:
        ValueError: it is not finite, or above its limit.
    """
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"`{name}` must be a finite number, got {each}.")
        if isinstance(each, int | float) and each > limit_of(name):
            raise ValueError(f"`{name}` must be at most {limit_of(name):,}, got {each}.")
        if isinstance(each, int | float) and each < -limit_of(name):
            raise ValueError(f"`{name}` must be at least {-limit_of(name):,}, got {each}.")


def check_numbers(values: Mapping[str, Any]) -> None:
    """Check all numbers of a mapping; see [`check_number`]."""
    for name, value in values.items():
        check_number(name, value)


def least_parameters(config: Any) -> int:
    """Return a lower bound of the parameters of a model with an encoder, a decoder or both, before it is built."""

    def size(name: str) -> int:
        return getattr(config, name, None) or 0

    width, parameters = size("d_model"), 0
    for side, attentions in (("encoder", 1), ("decoder", 2)):
        heads = size(f"{side}_attention_heads")
        keys, values = (heads * size(f"attention_{part}_dim") or width for part in ("key", "value"))
        layer = width * (2 * attentions * (keys + values) + 2 * size(f"{side}_ffn_dim"))
        parameters += size(f"{side}_layers") * layer
    # Formats may share embeddings and lack the row of the padding.
    return parameters + width * (max(size("vocab_size"), size("decoder_vocab_size")) - 1)
