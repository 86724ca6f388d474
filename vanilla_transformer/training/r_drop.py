"""
R-Drop (Liang et al., 2021): pass each batch twice, and train the predictions of both passes to agree.

Dropout makes the passes differ. The loss of a token is the mean of its cross-entropies in both passes, plus half of
`r_drop_weight`, the paper's α, times the mean of both Kullback-Leibler divergences. That is half of the paper's loss.

Letters in shapes: N tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from vanilla_transformer.data.batches import Batch

from .run_arguments import DROPOUTS


def check_r_drop(weight: float, config: Any) -> None:
    """Refuse R-Drop for a model without dropout.

    Raises:
        ValueError: both passes would be the same.
    """
    if weight and not any(getattr(config, name) for name in DROPOUTS):
        rule = "must be given for a model with dropout, got it for one without"
        raise ValueError(f"`r_drop_weight` {rule}: both passes would be the same. Set `dropout`, or leave it out.")


def repeat_batch(batch: Batch) -> Batch:
    """Return a prepared batch with all rows twice: all of them, then all of them again."""
    repeated = {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
    labels = batch["labels"].numel()
    # The indices in flattened tensors, which become twice as long.
    for name, size in (("label_places", labels), ("link_places", labels * batch["input_ids"].shape[1])):
        if name in batch:
            repeated[name][len(batch[name]) :] += size
    return repeated


def symmetric_divergence(logits: Tensor, logsumexp: Tensor) -> Tensor:
    """Return the mean of both divergences of each token, `(N,)`. Autograd gives its gradient.

    Args:
        logits (`torch.Tensor` of shape `(2, N, V)`), logsumexp (`torch.Tensor` of shape `(2, N)`): Of both passes.
    """
    log_probabilities = logits - logsumexp.unsqueeze(-1)
    first, second = log_probabilities.exp()
    return ((first - second) * (log_probabilities[0] - log_probabilities[1])).sum(dim=-1) / 2


def divergence_with_gradient(logits: Tensor, logsumexp: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return [`symmetric_divergence`] of each token, `(N,)`, and its gradient with respect to the logits.

    Args:
        logits, probabilities (`torch.Tensor` of shape `(N, 2, V)`), logsumexp (`torch.Tensor` of shape `(N, 2)`):
            Of both passes.
    """
    first, second = probabilities.unbind(dim=1)
    log_ratio = logits[:, 0] - logits[:, 1] - (logsumexp[:, 0] - logsumexp[:, 1]).unsqueeze(-1)  # (N, V)
    forward = (first * log_ratio).sum(dim=-1, keepdim=True)
    backward = -(second * log_ratio).sum(dim=-1, keepdim=True)
    change = first - second
    gradients = first * (log_ratio - forward) + change, -second * (log_ratio + backward) - change
    return (forward + backward).squeeze(-1) / 2, torch.stack(gradients, dim=1) / 2


__all__ = ["check_r_drop", "divergence_with_gradient", "repeat_batch", "symmetric_divergence"]
