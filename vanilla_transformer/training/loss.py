"""Label-smoothed cross-entropy (section 5.4), as a sum over tokens, without the logits of all of them at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from vanilla_transformer.data.batch_sampler import IGNORED_LABEL, Batch
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

# Logits that are there at a time, unless the weight has more numbers, and of those on a CPU as many that are worked on
# as its cache holds.
_LOGITS_AT_ONCE = 2**23
_LOGITS_AT_ONCE_GPU = 2**26
_LOGITS_IN_CACHE = 2**19


class SummedLoss(NamedTuple):
    """Sums over the labelled tokens of a batch, in nats."""

    smoothed: torch.Tensor
    plain: torch.Tensor


class Objective(nn.Module):
    """
    What training makes small: the loss of a model on a batch. One module, so that all parameters are used inside what
    Accelerate and FSDP wrap.

    Args:
        core: The model.
        smoothing (`float`): ε of section 5.4.
    """

    def __init__(self, core: VanillaTransformerForConditionalGeneration, smoothing: float):
        super().__init__()
        self.core = core
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> SummedLoss:
        """Takes `input_ids`, `attention_mask` and `labels`, each `(batch_size, length)`."""
        outputs = self.core.model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=self.core.prepare_decoder_input_ids_from_labels(batch["labels"]),
            use_cache=False,
        )
        return projected_cross_entropy(
            outputs.last_hidden_state,
            self.core.lm_head.weight,
            self.core.lm_head.bias,
            batch["labels"],
            self.smoothing,
        )


@torch.compiler.disable
def projected_cross_entropy(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, labels: torch.Tensor, smoothing: float
) -> SummedLoss:
    """
    Cross-entropy of the logits `states Wᵀ + b` against `(1 - ε) · onehot(label) + ε / V` (Szegedy et al., 2016): the
    mass ε is spread over all V entries, the right one among them. Tensor2Tensor spreads it over the V - 1 others, a
    difference of ε / V.

    The gradient is known as soon as the loss is, so the logits of some tokens are made, turned into their gradient and
    multiplied into those of states, weight and bias before the next ones are made; those of padding are not made at
    all. Products are in the type of autocast where that is on. Sums and the weight's gradient are in float32 whatever
    the logits are. Only `smoothed` has a gradient, once.

    Args:
        states (`torch.Tensor` of shape `(batch_size, target_length, d_model)`): The decoder's output.
        weight (`torch.Tensor` of shape `(vocab_size, d_model)`), bias (`torch.Tensor` of shape `(vocab_size,)`)
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`): -100 where there is no label.
        smoothing (`float`): ε; the paper has 0.1.
    """
    labelled = labels != IGNORED_LABEL
    return SummedLoss(*_ProjectedCrossEntropy.apply(states[labelled], weight, bias, labels[labelled], smoothing))


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Both losses of states `(N, D)`, weight `(V, D)`, bias `(V,)` and labels `(N,)`."""

    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        smoothing: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        device, kind = states.device.type, weight.dtype
        if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.float16:
            kind = torch.get_autocast_dtype(device)  # in 16 bits without bfloat16's range small gradients would vanish
        gradients: list[torch.Tensor | None] = [
            torch.zeros_like(tensor, dtype=torch.float32) if wanted and tensor is not None else None
            for tensor, wanted in zip((states, weight, bias), ctx.needs_input_grad, strict=False)
        ]
        smoothed, plain = states.new_zeros(2, dtype=torch.float32)
        with torch.autocast(device, enabled=False):
            factor = weight.to(kind)
            at_once = max(weight.numel(), _LOGITS_AT_ONCE if device == "cpu" else _LOGITS_AT_ONCE_GPU)
            for some in _slices((len(states), len(weight)), at_once):
                rows = states[some].to(kind)
                logits = nn.functional.linear(rows, factor, None if bias is None else bias.to(kind))
                losses = _losses_in_place(logits, labels[some], smoothing)
                smoothed, plain = smoothed + losses.smoothed, plain + losses.plain
                _add_gradients(gradients, some, logits, rows, factor)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_smoothed: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # On a CPU a tensor of another type as the factor is slow; on a GPU reading its value would wait for the GPU.
        factor = of_smoothed.item() if of_smoothed.device.type == "cpu" else of_smoothed
        # In place, for that of the weight is large; autograd notices where somebody wants them twice.
        scaled = [None if gradient is None else gradient.mul_(factor) for gradient in ctx.saved_tensors]
        return *scaled, None, None


def _slices(shape: Sequence[int], numbers_at_once: int) -> list[slice]:
    """The rows of a matrix, as many at a time as have about `numbers_at_once` numbers."""
    at_once = max(1, numbers_at_once // shape[1])
    return [slice(first, first + at_once) for first in range(0, shape[0], at_once)]


def _add_gradients(
    gradients: list[torch.Tensor | None],
    some: slice,
    of_logits: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
) -> None:
    of_states, of_weight, of_bias = gradients
    if of_states is not None:
        of_states[some] = of_logits @ weight
    if of_weight is not None:
        of_weight += of_logits.t() @ rows
    if of_bias is not None:
        of_bias += of_logits.sum(dim=0, dtype=torch.float32)


def _losses_in_place(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> SummedLoss:
    """The losses of logits `(N, V)`, which become their gradient: softmax minus the smoothed distribution."""
    smoothed, plain = logits.new_zeros(2, dtype=torch.float32)
    in_cache = _LOGITS_IN_CACHE if logits.device.type == "cpu" else logits.numel()
    for some in _slices(logits.shape, in_cache):
        losses = _rows_in_place(logits[some], labels[some].unsqueeze(-1), smoothing)
        smoothed, plain = smoothed + losses.smoothed, plain + losses.plain
    return SummedLoss(smoothed, plain)


def _rows_in_place(rows: torch.Tensor, labels: torch.Tensor, smoothing: float) -> SummedLoss:
    """The same for labels `(N, 1)`, all at once."""
    logits = rows.float()
    uniform, of_labels = logits.mean(dim=-1), logits.gather(-1, labels).squeeze(-1)
    highest = logits.amax(dim=-1)
    probabilities = logits.softmax(dim=-1)
    # log Σ exp by way of the highest probability, which is at least 1 / V
    normaliser = highest - probabilities.amax(dim=-1).log()  # (N,)
    plain = (normaliser - of_labels).sum()
    spread = (normaliser - uniform).sum()
    probabilities.sub_(smoothing / logits.shape[-1])
    probabilities.scatter_add_(-1, labels, torch.full_like(probabilities[:, :1], smoothing - 1.0))
    rows.copy_(probabilities)
    return SummedLoss((1.0 - smoothing) * plain + smoothing * spread, plain)
