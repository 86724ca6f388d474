"""The time of a decoder's matrix products alone: the limit of a machine, of which decoding reaches a share."""

import copy
import time
from typing import Any

import torch

from vanilla_transformer.decoding.weight_packing import PackedLinear

_ROUNDS = 20


def share_of_products(model: Any, dtype: torch.dtype, tokens_per_second: float, sentences: int, beams: int) -> float:
    """Return the time of the decoder's products alone as a share of the time that generating tokens took.

    Args:
        dtype: The type of the products.
        tokens_per_second: Tokens of returned hypotheses.
        sentences: That a step decodes at once, at most.
    """
    limit = sentences / seconds_of_products(model, sentences * beams, dtype)
    return round(tokens_per_second / limit, 2)


@torch.inference_mode()
def seconds_of_products(model: Any, rows: int, dtype: torch.dtype) -> float:
    """Return the time of the matrix products of one decoder step, for that many hypotheses, all weights in turn."""
    layers = [layer for layer in model.get_decoder().modules() if isinstance(layer, torch.nn.Linear)]
    source = {id(part) for layer in model.get_decoder().layers for part in _source_projections(layer)}
    plain = [copy.deepcopy(layer).to(dtype) for layer in (*layers, model.lm_head) if id(layer) not in source]
    kinds = [plain] if dtype != torch.float32 else [plain, [PackedLinear(layer) for layer in plain]]
    inputs = {layer.in_features: torch.randn(rows, layer.in_features).to(dtype) for layer in plain}
    best = float("inf")
    for kind in kinds * _ROUNDS:
        started = time.perf_counter()
        for layer in kind:
            layer(inputs[layer.in_features])
        best = min(best, time.perf_counter() - started)
    return best


def _source_projections(layer: Any) -> list[Any]:
    """Return the products that are done once for each source."""
    return [layer.encoder_attn.k_proj, layer.encoder_attn.v_proj]
