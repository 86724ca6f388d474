"""
Batches as the device gets them: with all that the host would otherwise read from the device, or
several sentences in a row (packed), whose positions become masks of attention on the device.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vanilla_transformer.data.batches import IGNORED_LABEL, Batch, is_packed
from vanilla_transformer.errors import UserError
from vanilla_transformer.generation_vanilla_transformer import source_mask
from vanilla_transformer.machine.attention import additive_mask, expand_mask
from vanilla_transformer.machine.transfers import copy_to_device
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerDecoder,
    VanillaTransformerEncoder,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# The most logits of a batch whose loss is computed in one graph: with their gradient 4 GB in
# bfloat16. R-Drop doubles them.
_LOGITS_IN_GRAPH = 2**30
_WITH_MASKS = ("sdpa", "eager")  # implementations that take a mask for each row


@dataclass(frozen=True)
class BatchPreparation:
    """
    Add to a batch, on the CPU, the tensors that a model needs. Workers of the data loader call it,
    without the model.

    A batch that has been prepared stays as it is.

    Args:
        config: Configuration of the model.
        attention: The implementation for which masks are prepared, or None for the plain mask.
        dtype: Data type of the model.
        keep_mask: Keep a mask without padding, so that all batches take one compiled graph.
        loss_in_graph: The model has `loss_in_graph` (see [`ModelWithLoss`]), which needs no places
            of labels.
    """

    config: "PreTrainedConfig"
    attention: str | None
    dtype: torch.dtype
    keep_mask: bool = False
    loss_in_graph: bool = False

    @classmethod
    def for_model(
        cls, model: "PreTrainedModel", keep_mask: bool = False, loss_in_graph: bool = False
    ) -> "BatchPreparation":
        """Return the preparation for a model, whose attention implementation does not change
        afterwards.
        """
        attention = model.config._attn_implementation
        has_masks = (
            type(model.get_encoder()) is VanillaTransformerEncoder and attention in _WITH_MASKS
        )
        return cls(
            model.config, attention if has_masks else None, model.dtype, keep_mask, loss_in_graph
        )

    def __call__(self, batch: Batch) -> Batch:
        """Prepare a batch.

        Args:
            batch: `input_ids`, `attention_mask` and `labels`, as [`TokenTable.pad`] returns them,
                or what [`TokenTable.pack`] returns, and, with guided alignment, `link_places` and
                `link_weights`.

        Returns:
            `input_ids`, `labels`, the links, and, unless there is no padding, `attention_mask` in
            the form that the model's attention takes. Packed batches have `source_positions` and
            `target_positions` instead. Unless the loss is computed in a graph, there are also
            `label_places`, the indices in `labels.flatten()` of the labels that count.
        """
        mask = batch.get("attention_mask")
        is_plain = is_packed(batch) or (mask is not None and mask.dim() == 2)
        if "label_places" in batch or not is_plain:  # prepared, or would stay as it is
            return batch
        prepared = {"input_ids": batch["input_ids"], "labels": batch["labels"]}
        prepared |= {name: batch[name] for name in ("link_places", "link_weights") if name in batch}
        if (
            not self.loss_in_graph
            or batch["labels"].numel() * self.config.vocab_size > _LOGITS_IN_GRAPH
        ):
            prepared["label_places"] = (
                (batch["labels"].flatten() != IGNORED_LABEL).nonzero().flatten()
            )
        if is_packed(batch):
            return prepared | {
                name: batch[name] for name in ("source_positions", "target_positions")
            }
        if self.attention is None:
            return prepared | {"attention_mask": batch["attention_mask"]}
        # The mask that the library would derive on the device, where it would read if there is
        # padding.
        seen = source_mask(self.config, batch["input_ids"], batch["attention_mask"])
        if seen is None or (seen.all() and not self.keep_mask):
            return prepared
        return prepared | {"attention_mask": expand_mask(seen, self.attention, self.dtype)}


def batch_to_device(batch: Batch, prepare: BatchPreparation, device: torch.device) -> Batch:
    """Copy a batch to the device, without waiting for the device; prepare it first if no worker has
    done so.
    """
    return {name: copy_to_device(tensor, device) for name, tensor in prepare(batch).items()}


def should_pack(
    choice: bool | None, model: "PreTrainedModel", compiled: bool, device: torch.device
) -> bool:
    """Return whether to pack batches: as the recipe says, and by default for a compiled model on a
    GPU of CUDA.
    """
    attention = model.config._attn_implementation
    stacks = type(model.model), type(model.get_encoder()), type(model.get_decoder())
    plain = stacks == (
        VanillaTransformerModel,
        VanillaTransformerEncoder,
        VanillaTransformerDecoder,
    )
    plain = plain and model.config.source_eos and not has_other_forward(model)
    if choice and not (plain and attention in _WITH_MASKS):
        kind = (
            f"attn_implementation: {attention}"
            if plain
            else "another kind of model or one without `source_eos`"
        )
        raise UserError(
            f"`packing` must be given with softmax attention by {' or '.join(_WITH_MASKS)}, got "
            f"{kind}. Leave it out."
        )
    by_default = compiled and plain and attention in _WITH_MASKS and device.type == "cuda"
    return by_default if choice is None else choice


def has_other_forward(model: "PreTrainedModel") -> bool:
    """Return whether the class of a model replaces the `forward` that projects the decoder's
    output.
    """
    return type(model).forward is not VanillaTransformerForConditionalGeneration.forward


def packed_decoder_states(
    model: VanillaTransformerForConditionalGeneration, batch: Batch
) -> Tensor:
    """Return the decoder's output for a packed batch, `(B, T, D)`: each pair as if it had a batch
    for itself.
    """
    source_positions, target_positions, labels = (
        batch[name] for name in ("source_positions", "target_positions", "labels")
    )
    padding = labels == IGNORED_LABEL
    # The number of each token's sentence in its row, from 1. Each token of padding has its own
    # number.
    source, target = (
        (positions == 0).cumsum(dim=-1) for positions in (source_positions, target_positions)
    )
    # The type of queries and keys, to which attention would convert a mask in each layer.
    device = model.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else model.dtype
    same = source[:, None] == source[:, :, None]  # (B, S, S)
    encoded = model.get_encoder()(
        input_ids=batch["input_ids"],
        attention_mask=additive_mask(same[:, None], dtype),
        position_ids=source_positions,
    )
    length = labels.shape[1]
    past = torch.ones(length, length, dtype=torch.bool, device=labels.device).tril()
    # A row of the source may have less padding. There padding of the target attends to everything,
    # not to nothing.
    aligned = (target[:, :, None] == source[:, None]) | padding[:, :, None]  # (B, T, S)
    start: Any = model.config.decoder_start_token_id
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    decoded = model.get_decoder()(
        input_ids=shifted.masked_fill((target_positions == 0) & ~padding, start),
        attention_mask=additive_mask(
            ((target[:, None] == target[:, :, None]) & past)[:, None], dtype
        ),
        encoder_hidden_states=encoded.last_hidden_state,
        encoder_attention_mask=additive_mask(aligned[:, None], dtype),
        position_ids=target_positions,
        use_cache=False,
    )
    return decoded.last_hidden_state
