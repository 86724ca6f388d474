"""The fused output projection and cross-entropy of liger-kernel, for comparison with the package's own loss."""

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from vanilla_transformer.training import loss


def loss_of_liger_kernel() -> AbstractContextManager[Any]:
    """Compute the loss by liger-kernel within the block."""
    return mock.patch.object(loss, "projected_cross_entropy", liger_cross_entropy)


def liger_cross_entropy(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    smoothing: float,
    places: torch.Tensor,
) -> loss.SummedLoss:
    """Return the smoothed loss twice. Products are bf16 and gradients summed in float32, as in the package's loss."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    compute = LigerFusedLinearCrossEntropyLoss(label_smoothing=smoothing, reduction="sum", accum_dtype=torch.float32)
    states, labels = states.flatten(end_dim=-2).index_select(0, places), labels.flatten().index_select(0, places)
    weight, states = weight.bfloat16(), states.bfloat16()
    smoothed = compute(weight, states, labels, None if bias is None else bias.bfloat16())
    return loss.SummedLoss(smoothed, smoothed.detach())
