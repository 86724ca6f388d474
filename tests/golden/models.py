"""Small models with peaked distributions, built from seeds, whose translations differ in length and
often end in EOS.

Weights come from NumPy, whose random numbers are the same on all machines and in all releases of
torch.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import torch

from tests import tiny
from tests.m2m_100_models import build_nllb_tokenizer, m2m_100
from tests.model_variants import CALIBRATION, LIMITS
from vanilla_transformer.data.tokenizer_training import add_augmentation_tokens
from vanilla_transformer.extensions.conversion.from_transformers import convert_model
from vanilla_transformer.text.languages import Direction, add_language_tags

EOS = 2
_DIRECTIONS = [Direction("en", "de"), Direction("de", "en"), Direction("en", "fr")]
# Standard deviations of weights by a part of their name; else 0.6.
_SPREADS = {"lm_head": 0.6, "embed": 0.35, "fc": 0.7, "encoder_attn.out": 0.3}
_FIRST = {"normalize_before": True}
_HEAD = {"tie_word_embeddings": False, "lm_head_bias": True}
_LSH = {"layer_types": "lsh_attention", "num_hashes": 2, "num_buckets": 4}
_LSH |= {"lsh_attn_chunk_length": 4}
_XL = {"layer_types": "transfo_xl_attention"}
_REVERSIBLE = _FIRST | {"layer_types": "full_attention", "reversible": True}
_LEARNED = _FIRST | {"position_embedding_type": "learned", "max_position_embeddings": 24}
_CROSS = {"cross_attention_type": "linear_attention"}
_HEADS = {"alignment_heads": [[0, 0]]}
_ALIGNED = {"confidence": asdict(CALIBRATION), "warning_limits": asdict(LIMITS)}
# Factor of the embedding of a token that is subtracted from its output weights.
_AGAINST_REPEATING = 1.0
# Name → function that builds the model, seed, its tokenizer, and fields of its configuration.
MODELS: dict[str, tuple[Callable[..., Any], int, str, dict[str, Any]]] = {
    "plain": (tiny.tiny_model, 17, "plain", _FIRST),
    "aligned": (tiny.tiny_model, 17, "plain", _FIRST | _HEADS | _ALIGNED),
    "other": (tiny.tiny_model, 7, "plain", _FIRST),
    "reverse": (tiny.tiny_model, 34, "plain", {"decoder_layers": 2}),
    "limited": (tiny.tiny_model, 6, "plain", _FIRST | {"max_source_length": 12}),
    "learned": (tiny.tiny_model, 14, "plain", {**_LEARNED, "source_eos": False}),
    "tagged": (tiny.tiny_model, 38, "tagged", _FIRST),
    "inline": (tiny.tiny_model, 36, "terms", _FIRST | _HEADS),
    "linear": (tiny.tiny_long_model, 10, "plain", _FIRST),
    "linear_cross": (tiny.tiny_long_model, 11, "plain", _CROSS),
    "lsh": (tiny.tiny_long_model, 3, "plain", _FIRST | _LSH),
    "reversible": (tiny.tiny_long_model, 30, "plain", _REVERSIBLE),
    "transfo_xl": (tiny.tiny_long_model, 4, "plain", _FIRST | _XL),
    "causal": (tiny.tiny_causal_lm, 27, "plain", {"decoder_layers": 2}),
    "causal_linear": (tiny.tiny_long_causal_lm, 22, "plain", _FIRST),
    "causal_lsh": (tiny.tiny_long_causal_lm, 1, "plain", _LSH),
    "causal_transfo_xl": (tiny.tiny_long_causal_lm, 33, "plain", _XL | {"mem_len": 5}),
    "causal_reversible": (tiny.tiny_long_causal_lm, 7, "plain", _REVERSIBLE),
}


def build(name: str, noise: float = 0.0, noise_seed: int = 0) -> Any:
    """Return a model in evaluation mode, whose weights have relative noise."""
    if name == "nllb":
        model, seed, vocabulary = convert_model(m2m_100(len(tokenizer(name)))), 18, name
    else:
        make, seed, vocabulary, fields = MODELS[name]
        model = make(**_HEAD | {"vocab_size": len(tokenizer(vocabulary))} | fields)
    _fill(model, np.random.default_rng(seed))
    if model.config.is_encoder_decoder and name != "nllb":
        model.generation_config.max_new_tokens_beyond_source = 8
    if getattr(model.config, "lm_head_bias", False):
        with torch.no_grad():
            model.lm_head.bias.copy_(_bias(vocabulary))
            embeddings = model.get_decoder().embed_tokens.weight
            model.lm_head.weight.sub_(_AGAINST_REPEATING * embeddings)
            model.lm_head.weight[EOS] *= 2
    _blur(model, noise, np.random.default_rng([seed, noise_seed]))
    return model.eval()


def build_tokenizer(name: str) -> Any:
    """Return the tokenizer of a model."""
    return tokenizer("nllb" if name == "nllb" else MODELS[name][2])


@cache
def tokenizer(name: str) -> Any:
    if name == "nllb":
        return build_nllb_tokenizer()
    if name == "plain":
        return tiny.tiny_tokenizer()
    extended = copy.deepcopy(tokenizer("plain"))
    if name == "tagged":
        add_language_tags(extended, _DIRECTIONS)
    else:
        add_augmentation_tokens(extended, ["inline_terms"])
    return extended


@torch.no_grad()
def _fill(model: torch.nn.Module, random: np.random.Generator) -> None:
    for name, parameter in sorted(model.named_parameters()):
        values = torch.from_numpy(random.standard_normal(parameter.shape)).float()
        if name.endswith("bias") or parameter.dim() == 1:
            is_scale = "norm" in name and not name.endswith("bias")
            parameter.copy_(0.1 * values + float(is_scale))
        else:
            spreads = [spread for part, spread in _SPREADS.items() if part in name]
            spread = [*spreads, 0.6][0]
            parameter.copy_(spread * values)


@torch.no_grad()
def _blur(model: torch.nn.Module, noise: float, random: np.random.Generator) -> None:
    if noise:
        for _, parameter in sorted(model.named_parameters()):
            values = torch.from_numpy(random.standard_normal(parameter.shape)).float()
            parameter.mul_(1 + noise * values)


def _bias(name: str) -> torch.Tensor:
    """Return the bias of the logits: EOS is likely, and tokens that are no printable text are
    not.
    """
    vocabulary = tokenizer(name)
    texts = vocabulary.batch_decode([[token] for token in range(len(vocabulary))])
    bias = [0.0] * len(texts)
    for token, text in enumerate(texts):
        if not text.isprintable() or "\ufffd" in text:
            bias[token] = -8.0
    for token in vocabulary.all_special_ids:
        bias[token] = -20.0
    bias[EOS] = 5.0
    return torch.tensor(bias)
