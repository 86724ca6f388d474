"""Label-smoothed cross-entropy (section 5.4), as a sum over tokens."""

from typing import NamedTuple

import torch

from .batching import IGNORED_LABEL


class SummedLoss(NamedTuple):
    """Sums over the labelled tokens of a batch, in nats."""

    smoothed: torch.Tensor
    plain: torch.Tensor


def smoothed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> SummedLoss:
    """
    Cross-entropy against `(1 - ε) · onehot(label) + ε / V` (Szegedy et al., 2016): the mass ε is spread over all V
    entries, the right one among them. Tensor2Tensor spreads it over the V - 1 others, which differs by ε / V.

    Args:
        logits (`torch.Tensor` of shape `(batch_size, target_length, vocab_size)`)
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`): -100 where there is no label.
        smoothing (`float`): ε; the paper has 0.1.
    """
    labelled = labels != IGNORED_LABEL
    log_probabilities = logits.float().log_softmax(dim=-1)  # (B, T, V)
    of_labels = log_probabilities.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)  # (B, T)
    plain = -(of_labels * labelled).sum()
    if smoothing == 0.0:
        return SummedLoss(plain, plain.detach())
    uniform = -(log_probabilities.mean(dim=-1) * labelled).sum()
    return SummedLoss((1.0 - smoothing) * plain + smoothing * uniform, plain.detach())
