"""The encoder of a model, for a batch of sources that the engine has read."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerEncoder

from .device_copies import to_device


def encode(model: Any, sources: Sequence[Sequence[int]], seen: Sequence[int]) -> Tensor:
    """
    Return the encoder's outputs `(W, S, D)` for W sources of up to S tokens.

    The library's own preparation of masks reads them, for which a GPU would have to stop. Here attention gets its mask
    of padding ready-made, or none if there is no padding, since flash attention takes no mask.

    Args:
        seen: How many tokens of each source attention may see, from the first one.
    """
    encoder, device = model.get_encoder(), model.device
    ids = nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in sources], batch_first=True)  # (W, S)
    mask = to_device(torch.arange(ids.shape[1]) < torch.tensor(seen)[:, None], device)  # (W, S)
    has_padding, ids = min(seen) < ids.shape[1], to_device(ids, device)
    if type(encoder) is not VanillaTransformerEncoder:
        return encoder(input_ids=ids, attention_mask=mask)[0]
    prepared = None
    if has_padding:
        prepared = mask.bool()[:, None, None]  # (W, 1, 1, S)
        if model.config._attn_implementation == "eager":
            prepared = torch.where(prepared, 0.0, torch.finfo(model.dtype).min).to(model.dtype)
    # From `input_ids`, the model would derive a mask of padding.
    return encoder(inputs_embeds=encoder.embed_tokens(ids), attention_mask=prepared)[0]


__all__ = ["encode"]
