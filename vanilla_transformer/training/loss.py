"""Label-smoothed cross-entropy (section 5.4), as a sum over tokens."""

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from .batching import IGNORED_LABEL

# Logits that are worked on at a time: as many as a processor's cache holds, or as keep a GPU busy.
_LOGITS_AT_ONCE_CPU = 2**19
_LOGITS_AT_ONCE = 2**26


class SummedLoss(NamedTuple):
    """Sums over the labelled tokens of a batch, in nats."""

    smoothed: torch.Tensor
    plain: torch.Tensor


def smoothed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> SummedLoss:
    """
    Cross-entropy against `(1 - ε) · onehot(label) + ε / V` (Szegedy et al., 2016): the mass ε is spread over all V
    entries, the right one among them. Tensor2Tensor spreads it over the V - 1 others, which differs by ε / V.

    The gradient is known as soon as the loss is, so both come from one pass over the logits, some rows at a time; what
    is kept for the backward pass is one tensor like `logits`, whereas a chain of torch's functions keeps several, in
    float32. Sums are in float32 whatever the logits are. Only `smoothed` has a gradient.

    Args:
        logits (`torch.Tensor` of shape `(batch_size, target_length, vocab_size)`)
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`): -100 where there is no label.
        smoothing (`float`): ε; the paper has 0.1.
    """
    return SummedLoss(*_SmoothedCrossEntropy.apply(logits.flatten(0, -2), labels.flatten(), smoothing))


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Both losses of logits `(N, V)` and labels `(N,)`."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, smoothing: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        smoothed, plain = logits.new_zeros(2, dtype=torch.float32)
        rows = _rows_at_once(logits)
        for first in range(0, len(logits), rows):
            some = slice(first, first + rows)
            losses = _sum_rows(logits[some], labels[some], smoothing, None if gradient is None else gradient[some])
            smoothed, plain = smoothed + losses.smoothed, plain + losses.plain
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_smoothed: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        # On a CPU a tensor of another type as the factor is slow; on a GPU reading its value would wait for the GPU.
        factor = of_smoothed.item() if gradient.device.type == "cpu" else of_smoothed
        return gradient * factor, None, None


def _rows_at_once(logits: torch.Tensor) -> int:
    at_once = _LOGITS_AT_ONCE_CPU if logits.device.type == "cpu" else _LOGITS_AT_ONCE
    return max(1, at_once // logits.shape[-1])


def _sum_rows(
    logits: torch.Tensor, labels: torch.Tensor, smoothing: float, gradient: torch.Tensor | None
) -> SummedLoss:
    """The losses of some rows, whose gradient is written to `gradient`: softmax minus the smoothed distribution."""
    labelled = labels != IGNORED_LABEL
    index = labels.clamp(min=0).unsqueeze(-1)  # (N, 1)
    logits = logits.float()
    uniform, of_labels = logits.mean(dim=-1), logits.gather(-1, index).squeeze(-1)
    probabilities = logits.softmax(dim=-1)
    # log Σ exp by way of the highest probability, which is at least 1 / V
    normaliser = logits.amax(dim=-1) - probabilities.amax(dim=-1).log()  # (N,)
    plain = ((normaliser - of_labels) * labelled).sum()
    spread = ((normaliser - uniform) * labelled).sum()
    if gradient is not None:
        probabilities.sub_(smoothing / logits.shape[-1])
        probabilities.scatter_add_(-1, index, torch.full_like(probabilities[:, :1], smoothing - 1.0))
        gradient.copy_(probabilities.mul_(labelled.unsqueeze(-1)))
    return SummedLoss((1.0 - smoothing) * plain + smoothing * spread, plain)
