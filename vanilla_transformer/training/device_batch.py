"""Batches as the device gets them: with all that the host would otherwise read from the device."""

from dataclasses import dataclass
from typing import Any

import torch

from vanilla_transformer.data.batches import IGNORED_LABEL, Batch, is_packed
from vanilla_transformer.generation_vanilla_transformer import source_mask
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.utils.device_utils import copy_to_device, expand_mask

from .loss import fits_in_graph


@dataclass(frozen=True)
class BatchPreparation:
    """
    Add to a batch, on the CPU, the tensors that a model needs. Workers of the data loader call it, without the model.

    A batch that has been prepared stays as it is.

    Args:
        config: Configuration of the model.
        attention: The implementation for which masks are prepared, or None for the plain mask.
        dtype: Data type of the model.
        keep_mask: Keep a mask without padding, so that all batches take one compiled graph.
        loss_in_graph: The model has `loss_in_graph` (see [`ModelWithLoss`]), which needs no places of labels.
    """

    config: Any
    attention: str | None
    dtype: torch.dtype
    keep_mask: bool = False
    loss_in_graph: bool = False

    @classmethod
    def for_model(cls, model: Any, keep_mask: bool = False, loss_in_graph: bool = False) -> "BatchPreparation":
        """Return the preparation for a model, whose attention implementation does not change afterwards."""
        attention = model.config._attn_implementation
        own = type(model.get_encoder()) is VanillaTransformerEncoder and attention in ("eager", "sdpa")
        return cls(model.config, attention if own else None, model.dtype, keep_mask, loss_in_graph)

    def __call__(self, batch: Batch) -> Batch:
        """Prepare a batch.

        Args:
            batch: `input_ids`, `attention_mask` and `labels`, as [`TokenTable.pad`] returns them, or what
                [`TokenTable.pack`] returns, and, with guided alignment, `link_places` and `link_weights`.

        Returns:
            `input_ids`, `labels`, the links, and, unless there is no padding, `attention_mask` in the form that the
            model's attention takes. Packed batches have `source_positions` and `target_positions` instead. Unless the
            loss is computed in a graph, there are also `label_places`, the indices in `labels.flatten()` of the labels
            that count.
        """
        if _is_prepared(batch):
            return batch
        prepared = {"input_ids": batch["input_ids"], "labels": batch["labels"]}
        prepared |= {name: batch[name] for name in ("link_places", "link_weights") if name in batch}
        if not (self.loss_in_graph and fits_in_graph(batch["labels"], self.config.vocab_size)):
            prepared["label_places"] = (batch["labels"].flatten() != IGNORED_LABEL).nonzero().flatten()
        if is_packed(batch):
            return prepared | {name: batch[name] for name in ("source_positions", "target_positions")}
        return prepared | self._prepare_padding(batch)

    def _prepare_padding(self, batch: Batch) -> Batch:
        """Return the mask that the library would derive on the device, where it would read if there is padding."""
        mask = batch["attention_mask"]
        if self.attention is None:
            return {"attention_mask": mask}
        seen = source_mask(self.config, batch["input_ids"], mask)
        if seen is None or (seen.all() and not self.keep_mask):
            return {}
        return {"attention_mask": expand_mask(seen, self.attention, self.dtype)}


def _is_prepared(batch: Batch) -> bool:
    """Return whether a batch has been prepared, or would stay as it is."""
    mask = batch.get("attention_mask")
    is_plain = is_packed(batch) or (mask is not None and mask.dim() == 2)
    return "label_places" in batch or not is_plain


def batch_to_device(batch: Batch, prepare: BatchPreparation, device: torch.device) -> Batch:
    """Copy a batch to the device, without waiting for the device; prepare it first if no worker has done so."""
    return {name: copy_to_device(tensor, device) for name, tensor in prepare(batch).items()}
