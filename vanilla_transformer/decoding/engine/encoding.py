"""The encoder of a model, for a batch of sources that the engine has read."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerEncoder

from .device_copies import to_device


def encode(model: Any, sources: Sequence[Sequence[int]], seen: Sequence[int], length: int | None = None) -> Tensor:
    """
    Return the encoder's outputs `(W, S, D)` for W sources of up to S tokens.

    The library's own preparation of masks reads them, for which a GPU would have to stop. Here attention gets its mask
    of padding ready-made, or none if there is no padding, since flash attention takes no mask.

    Args:
        seen: How many tokens of each source attention may see, from the first one.
        length: To which sources are padded; by default that of the longest one.
    """
    encoder, device = model.get_encoder(), model.device
    ids = pad_tokens(sources, max(map(len, sources)) if length is None else length)  # (W, S)
    mask = to_device(torch.arange(ids.shape[1]) < torch.tensor(seen)[:, None], device)  # (W, S)
    has_padding, ids = min(seen) < ids.shape[1], to_device(ids, device)
    if type(encoder) is not VanillaTransformerEncoder:
        return encoder(input_ids=ids, attention_mask=mask)[0]
    prepared = expand_mask(mask, model.config._attn_implementation, model.dtype) if has_padding else None
    # From `input_ids`, the model would derive a mask of padding.
    return encoder(inputs_embeds=encoder.embed_tokens(ids), attention_mask=prepared)[0]


def pad_tokens(sources: Sequence[Sequence[int]], length: int) -> Tensor:
    """Return the tokens of sources with zeros after them up to a length, `(W, S)`, on the host."""
    is_token = torch.arange(length) < torch.tensor([len(tokens) for tokens in sources])[:, None]
    ids = torch.zeros(is_token.shape, dtype=torch.long)
    ids[is_token] = torch.tensor([*chain.from_iterable(sources)])
    return ids


def expand_mask(seen: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Return a mask of padding `(W, S)`, 1 for tokens, as "sdpa" or "eager" attention takes it: `(W, 1, 1, S)`."""
    expanded = seen.bool()[:, None, None]
    if attention == "eager":
        return torch.where(expanded, 0.0, torch.finfo(dtype).min).to(dtype)
    return expanded


__all__ = ["encode", "expand_mask", "pad_tokens"]
