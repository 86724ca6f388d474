"""The positions of packed batches as masks of attention, and their decoder inputs, computed on the device."""

from typing import Any

import torch
from torch import Tensor

from vanilla_transformer.data.batches import IGNORED_LABEL, Batch
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerDecoder,
    VanillaTransformerEncoder,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.utils.device_utils import additive_mask

_WITH_MASKS = ("sdpa", "eager")  # implementations that take a mask for each row


def should_pack(choice: bool | None, model: Any, compiled: bool, device: torch.device) -> bool:
    """Return whether to pack batches: as the recipe says, and by default for a compiled model on a GPU of CUDA."""
    attention = model.config._attn_implementation
    stacks = type(model.model), type(model.get_encoder()), type(model.get_decoder())
    plain = stacks == (VanillaTransformerModel, VanillaTransformerEncoder, VanillaTransformerDecoder)
    plain = plain and model.config.source_eos and not has_other_forward(model)
    if choice and not (plain and attention in _WITH_MASKS):
        found = f"attn_implementation: {attention}" if plain else "another kind of model or one without `source_eos`"
        raise UserError(
            f"`packing` must be given with softmax attention by {' or '.join(_WITH_MASKS)}, got {found}. Leave it out."
        )
    by_default = compiled and plain and attention in _WITH_MASKS and device.type == "cuda"
    return by_default if choice is None else choice


def has_other_forward(model: Any) -> bool:
    """Return whether the class of a model replaces the `forward` that projects the decoder's output."""
    return type(model).forward is not VanillaTransformerForConditionalGeneration.forward


def packed_decoder_states(model: VanillaTransformerForConditionalGeneration, batch: Batch) -> Tensor:
    """Return the decoder's output for a packed batch, `(B, T, D)`: each pair as if it had a batch for itself."""
    source_positions, target_positions, labels = (
        batch[name] for name in ("source_positions", "target_positions", "labels")
    )
    padding = labels == IGNORED_LABEL
    source, target = (_number_sentences(each) for each in (source_positions, target_positions))
    dtype = _compute_dtype(model)
    same = source[:, None] == source[:, :, None]  # (B, S, S)
    encoded = model.get_encoder()(
        input_ids=batch["input_ids"], attention_mask=additive_mask(same[:, None], dtype), position_ids=source_positions
    )
    length = labels.shape[1]
    past = torch.ones(length, length, dtype=torch.bool, device=labels.device).tril()
    # A row of the source may have less padding. There padding of the target attends to everything, not to nothing.
    aligned = (target[:, :, None] == source[:, None]) | padding[:, :, None]  # (B, T, S)
    start: Any = model.config.decoder_start_token_id
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    decoded = model.get_decoder()(
        input_ids=shifted.masked_fill((target_positions == 0) & ~padding, start),
        attention_mask=additive_mask(((target[:, None] == target[:, :, None]) & past)[:, None], dtype),
        encoder_hidden_states=encoded.last_hidden_state,
        encoder_attention_mask=additive_mask(aligned[:, None], dtype),
        position_ids=target_positions,
        use_cache=False,
    )
    return decoded.last_hidden_state


def _number_sentences(positions: Tensor) -> Tensor:
    """Return the number of each token's sentence in its row, from 1. Each token of padding has its own number."""
    return (positions == 0).cumsum(dim=-1)


def _compute_dtype(model: VanillaTransformerForConditionalGeneration) -> torch.dtype:
    """Return the type of queries and keys, to which attention would convert a mask in each layer."""
    device = model.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else model.dtype
