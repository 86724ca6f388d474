"""Batches as the device gets them: with all that the host would otherwise read from the device."""

from typing import Any

import torch

from vanilla_transformer.data.micro_batch import IGNORED_LABEL, Batch
from vanilla_transformer.device_utils import copy_to_device, expand_mask
from vanilla_transformer.generation_vanilla_transformer import source_mask
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerEncoder

from .varlen_attention import VARLEN, pack_source


def to_device(batch: Batch, model: Any, device: torch.device, keep_mask: bool = False) -> Batch:
    """Prepare a batch on the CPU and copy it to the device, without waiting for the device.

    Args:
        batch: `input_ids`, `attention_mask` and `labels`, as [`TokenTable.pad`] returns them, and, with guided
            alignment, `link_places` and `link_weights`.
        keep_mask: Keep a mask without padding, so that all batches take one compiled graph.

    Returns:
        `input_ids`, `labels`, `label_places` (the indices in `labels.flatten()` of the labels that count) and, unless
        there is no padding, `attention_mask` in the form that the model's attention takes, or what it takes instead.
    """
    places = (batch["labels"].flatten() != IGNORED_LABEL).nonzero().flatten()
    prepared = {"input_ids": batch["input_ids"], "labels": batch["labels"], "label_places": places}
    prepared |= {name: batch[name] for name in ("link_places", "link_weights") if name in batch}
    prepared |= _prepare_padding(batch, model, keep_mask)
    return {name: copy_to_device(tensor, device) for name, tensor in prepared.items()}


def _prepare_padding(batch: Batch, model: Any, keep_mask: bool) -> Batch:
    """Return the mask that the library would derive on the device, where it would read whether there is padding."""
    mask, attention = batch["attention_mask"], model.config._attn_implementation
    if type(model.get_encoder()) is not VanillaTransformerEncoder or attention not in ("eager", "sdpa", VARLEN):
        return {"attention_mask": mask}
    seen = source_mask(model.config, batch["input_ids"], mask)
    if seen is None or (seen.all() and not keep_mask):
        return {}
    return pack_source(seen) if attention == VARLEN else {"attention_mask": expand_mask(seen, attention, model.dtype)}
