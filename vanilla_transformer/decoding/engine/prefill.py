"""
What sources and prompts leave in the memory of slots: the model reads a batch of them once, before
their search.

Letters in shapes: W sources in a batch, S source length, D d_model.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vanilla_transformer.decoding.ensemble import members_of
from vanilla_transformer.machine.attention import expand_mask, without_cudnn_attention
from vanilla_transformer.machine.transfers import to_device
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.modeling_vanilla_transformer_decoder import VanillaTransformerDecoderModel

from .device_profile import profile_of
from .static_decoder import CROSS_ATTENTIONS, SELF_ATTENTIONS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_LEAST_ROOM = 16  # positions of source or target for which a slot has memory at first
_VECTOR = 16  # keys that attention on a CPU reads at once
# The rows of a batch, each a tensor in the order of `SlotMemory.prefilled`.
Prefilled = list[Tensor]


def prefill(model: Any, sources: Sequence[Sequence[int]], seen: Sequence[int]) -> Prefilled:
    """Read a batch of sources or prompts, of which attention may see so many tokens.

    On a GPU, batches have few lengths and numbers of rows: for each shape, libraries choose
    kernels. So further rows may follow the given ones. On a CPU, sources in bfloat16 fill vectors,
    see [`room_for`]. Its products have blocks of as many rows, so that padding costs little.
    """
    length = max(map(len, sources))
    if profile_of(model.device).pads_prefill:
        rows, length = padded_shape(model.config, len(sources), length)
        further = rows - len(sources)
        sources, seen = [*sources, *[[0]] * further], [*seen, *[1] * further]
    else:
        length = _fit(
            model.config, length + (-length % _VECTOR if model.dtype == torch.bfloat16 else 0)
        )
    with without_cudnn_attention():
        if not model.config.is_encoder_decoder:
            return _read_prompts(model, sources, length)
        lengths = [len(tokens) for tokens in sources]
        read = [
            read_states(member, encode(member, sources, seen, length), lengths)
            for member in members_of(model)
        ]
    return [tensor for rows in read for tensor in rows]


def padded_shape(config: "PreTrainedConfig", rows: int, length: int) -> tuple[int, int]:
    """Return a number of sources and a length, rounded up so that few are in use."""
    return 1 << (rows - 1).bit_length(), _fit(config, room_for(length))


def _fit(config: "PreTrainedConfig", length: int) -> int:
    """Return a length, or the number of learned positions if there are fewer."""
    return (
        min(length, config.max_position_embeddings)
        if config.position_embedding_type == "learned"
        else length
    )


def room_for(positions: int, dtype: torch.dtype = torch.float32) -> int:
    """Return a number of positions, rounded up to a power of two or three quarters of one, so that
    few are in use.

    In bfloat16, they fill vectors. Attention on a CPU rounds the keys after the last whole vector
    otherwise than among more keys, and the translation of a sentence would depend on its neighbors.
    """
    power = 1 << (positions - 1).bit_length()
    less = power * 3 // 4
    is_enough = positions <= less and (dtype != torch.bfloat16 or less % _VECTOR == 0)
    return max(_LEAST_ROOM, less if is_enough else power)


def read_states(model: Any, states: Tensor, lengths: Sequence[int]) -> Prefilled:
    """Read the encoder's outputs `(W, S, D)`, of which attention may see so many positions."""
    attentions, sizes = (
        [layer.encoder_attn for layer in model.get_decoder().layers],
        to_device(lengths, states.device),
    )
    read = [
        CROSS_ATTENTIONS[type(attention)].read_source(attention, states, sizes)
        for attention in attentions
    ]
    return [tensor for layer in read for tensor in layer]


def _read_prompts(model: Any, prompts: Sequence[Sequence[int]], length: int) -> Prefilled:
    """Read prompts with the model's own layers and cache."""
    decoder, device = model.get_decoder(), model.device
    ids = pad_tokens(prompts, length)  # (W, S)
    lengths, mask = torch.tensor([len(tokens) for tokens in prompts]), None
    # Its causal attention never sees padding after a prompt.
    if type(decoder) is not VanillaTransformerDecoderModel:
        mask = to_device(torch.arange(ids.shape[1]) < lengths[:, None], device)  # (W, S)
    cache = decoder.create_cache()
    outputs = decoder(input_ids=to_device(ids, device), attention_mask=mask, cache=cache)
    places = torch.arange(len(prompts), device=device), to_device(lengths - 1, device)
    forms = [SELF_ATTENTIONS[type(layer.self_attn)] for layer in decoder.layers]
    read = [form.read_prompt(layer) for form, layer in zip(forms, cache.layers, strict=True)]
    return [outputs.last_hidden_state[places], *(tensor for layer in read for tensor in layer)]


def encode(
    model: Any, sources: Sequence[Sequence[int]], seen: Sequence[int], length: int | None = None
) -> Tensor:
    """
    Return the encoder's outputs `(W, S, D)` for W sources of up to S tokens.

    The library's own preparation of masks reads them, for which a GPU would have to stop. Here
    attention gets its mask of padding ready-made, or none if there is no padding, since flash
    attention takes no mask.

    Args:
        seen: Number of tokens of each source that attention may see, from the first one.
        length: Length to which sources are padded; by default that of the longest one.
    """
    encoder, device = model.get_encoder(), model.device
    ids = pad_tokens(sources, max(map(len, sources)) if length is None else length)  # (W, S)
    mask = to_device(torch.arange(ids.shape[1]) < torch.tensor(seen)[:, None], device)  # (W, S)
    has_padding, ids = min(seen) < ids.shape[1], to_device(ids, device)
    if type(encoder) is not VanillaTransformerEncoder:
        return encoder(input_ids=ids, attention_mask=mask)[0]
    prepared = (
        expand_mask(mask, model.config._attn_implementation, model.dtype) if has_padding else None
    )
    # From `input_ids`, the model would derive a mask of padding.
    return encoder(inputs_embeds=encoder.embed("input", ids, None), attention_mask=prepared)[0]


def pad_tokens(sources: Sequence[Sequence[int]], length: int) -> Tensor:
    """Return the tokens of sources with zeros after them up to a length, `(W, S)`, on the host."""
    is_token = torch.arange(length) < torch.tensor([len(tokens) for tokens in sources])[:, None]
    ids = torch.zeros(is_token.shape, dtype=torch.long)
    ids[is_token] = torch.tensor([*chain.from_iterable(sources)])
    return ids
