"""
Guided alignment: train one head of cross-attention toward given alignments of words (Garg et al.,
2019).

The head's attention is computed from the inputs of its layer, beside the model's own attention,
whatever implementation that has. A token's attention, when it is predicted, is trained toward the
tokens of the words that its word is aligned with, each word with an equal share. EOS, and words
without a counterpart, attend to the source's EOS.

Letters in shapes: B batch, T target length, S source length, L links in a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.data.batches import Batch
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerAttention
from vanilla_transformer.training.recipe_checks import check_alignment_layer
from vanilla_transformer.training.run_arguments import Recipe
from vanilla_transformer.training.summed_loss import SummedLoss

HEAD = 0  # of the layer that is trained


@dataclass(frozen=True)
class GuidedAlignment:
    """
    A term of the loss: the head to train, and how much it counts.

    Args:
        number: The layer of the decoder, from 0.
        weight: Factor of the alignment loss, which is added to the loss of the labels.
    """

    number: int
    weight: float

    def layer(self, model: PreTrainedModel) -> Any:
        """Return the layer with the head."""
        return model.get_decoder().layers[self.number]

    def add(
        self, model: PreTrainedModel, batch: Batch, label_loss: Callable[[Batch], SummedLoss]
    ) -> SummedLoss:
        """Add the alignment loss of a batch that has links."""
        if "link_places" not in batch:
            return label_loss(batch)
        attention = self.layer(model).encoder_attn
        calls = list[tuple[Any, ...]]()
        handle = attention.register_forward_pre_hook(lambda _, arguments: calls.append(arguments))
        try:
            loss = label_loss(batch)
        finally:
            handle.remove()
        states, mask, source = calls[0]
        guidance = alignment_loss(
            attention, states, mask, source, batch["link_places"], batch["link_weights"]
        )
        return loss._replace(smoothed=loss.smoothed + self.weight * guidance)


def create_guided_alignment(recipe: Recipe, config: VanillaTransformerConfig) -> GuidedAlignment:
    """
    Return the guided alignment of a recipe with `train_alignments`, and store its head in the
    configuration.

    By default, the layer is the last but one of the decoder (Garg et al., 2019), but not the first
    one of several: it would have to align the next word from the embeddings of the words before it.

    Args:
        config: Configuration of the model that is trained.
    """
    if isinstance(config, VanillaTransformerLongConfig):
        raise UserError(
            "`train_alignments` must be given for models with full attention only. Leave it out."
        )
    layer, layers = recipe.optimization.alignment_layer, config.decoder_layers
    if layer is None:
        layer = min(layers - 1, max(1, layers - 2))
    check_alignment_layer(layer, layers)
    config.alignment_heads = [[layer, HEAD]]
    return GuidedAlignment(layer, recipe.optimization.alignment_weight)


def alignment_loss(
    attention: VanillaTransformerAttention,
    states: Tensor,
    mask: Tensor | None,
    source: Tensor,
    places: Tensor,
    weights: Tensor,
) -> Tensor:
    """Return the cross-entropy between the attention of the head and the links of a batch, summed
    over the links.

    Args:
        attention: A cross-attention of the model.
        states, mask, source: Its inputs, `(B, T, D)`, a mask for `(B, 1, T, S)`, and `(B, S, D)`.
    """
    width = attention.head_dim
    rows = slice(HEAD * width, (HEAD + 1) * width)
    query = _project(attention.q_proj, states, rows)
    key = _project(attention.k_proj, source, rows)
    scores = ((query * attention.scaling) @ key.transpose(1, 2)).float()  # (B, T, S)
    if mask is not None:
        seen = mask[:, 0]
        if seen.dtype == torch.bool:
            scores = scores.masked_fill(~seen, -torch.inf)
        else:
            scores = scores + seen.float()
    return -(scores.log_softmax(dim=-1).flatten()[places] * weights).sum()


def _project(linear: nn.Module, states: Tensor, rows: slice) -> Tensor:
    """Return some outputs of a projection, which may have adapters."""
    if not isinstance(linear, nn.Linear):
        return linear(states)[..., rows]
    bias = None if linear.bias is None else linear.bias[rows]
    return nn.functional.linear(states, linear.weight[rows], bias)
