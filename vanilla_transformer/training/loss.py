"""Label-smoothed cross-entropy (section 5.4), summed over tokens, with the logits of a few tokens
at a time.

R-Drop (Liang et al., 2021) passes each batch twice, and trains the predictions of both passes to
agree. Dropout makes the passes differ. The loss of a token is the mean of its cross-entropies in
both passes, plus half of `r_drop_weight`, the paper's α, times the mean of both Kullback-Leibler
divergences. That is half of the paper's loss. It is computed here because the logits of both passes
exist only for a few tokens at a time.

Letters in shapes: N tokens, V vocabulary, D width of the model.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.data.batches import IGNORED_LABEL, Batch, is_packed, round_up
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.attention import without_cudnn_attention
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .device_batch import has_other_forward, packed_decoder_states
from .recipe_checks import find_loss_term
from .run_arguments import DROPOUTS, Recipe
from .summed_loss import SummedLoss

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# How many logits are computed at a time (at least a matrix as large as the weight), on a CPU and on
# a GPU, and how many of those the softmax works on at a time, so that they stay in a CPU's cache.
_LOGITS_PER_CHUNK = 2**23
_LOGITS_PER_CHUNK_GPU = 2**26
_LOGITS_IN_CACHE = 2**19
# oneDNN, which multiplies on a CPU in bfloat16, compiles each product for its number of rows. The
# chunks of a batch have the same number, a multiple of this one.
_ROWS_UNIT = 64


class LossTerm(Protocol):
    """A term that is added to the loss of the labels. `loss_terms` of a recipe names functions that
    return one.

    This one keeps embeddings small. If it is in `my_module.py`,
    `loss_terms: [my_module:SmallEmbeddings]` adds it:

        class SmallEmbeddings:
            def __init__(self, recipe, config):
                pass

            def layer(self, model):
                return None

            def add(self, model, batch, label_loss):
                loss = label_loss(batch)
                weight = model.get_input_embeddings().weight
                return loss._replace(smoothed=loss.smoothed + 0.01 * weight.square().sum())
    """

    def layer(self, model: "PreTrainedModel") -> Any:
        """Return the layer whose inputs and weights the term uses, or None.

        It is not compiled, and FSDP2 keeps its weights until the end of the backward pass.
        """

    def add(
        self, model: "PreTrainedModel", batch: Batch, label_loss: Callable[[Batch], SummedLoss]
    ) -> SummedLoss:
        """Compute the loss of the labels of a batch, and add the term to the smoothed one."""


class ModelWithLoss(nn.Module):
    """Compute the loss of a model on a batch.

    Model and loss are one module, so that DDP and FSDP2 wrap every use of a parameter.

    Args:
        model: The model to train.
        smoothing (`float`): ε of section 5.4.
        terms: Terms that are added to the loss of the labels.
        r_drop_weight (`float`): α of R-Drop; with 0, each batch passes once.
    """

    # Computes the loss of batches whose logits fit into memory: `cross_entropy_in_graph`, compiled.
    loss_in_graph: Callable[..., SummedLoss] | None = None

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        smoothing: float,
        terms: Sequence[LossTerm] = (),
        r_drop_weight: float = 0.0,
    ):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.terms = terms
        self.r_drop_weight = r_drop_weight

    @property
    def layers_of_terms(self) -> list[Any]:
        """Return the layers whose inputs and weights the terms use."""
        layers = [term.layer(self.model) for term in self.terms]
        return [layer for layer in layers if layer is not None]

    def forward(self, batch: Batch) -> SummedLoss:
        """Return the summed loss of a batch from [`batch_to_device`]."""
        compute: Callable[[Batch], SummedLoss] = self._label_loss
        for term in self.terms:
            compute = partial(term.add, self.model, label_loss=compute)
        if not self.r_drop_weight:
            return compute(batch)
        loss = compute(repeat_batch(batch))
        return SummedLoss(loss.smoothed / 2, loss.plain / 2)

    def _label_loss(self, batch: Batch) -> SummedLoss:
        labels = batch["labels"]
        if has_other_forward(self.model):
            return cross_entropy(
                self._run(self.model, batch).logits, labels, self.smoothing, self.r_drop_weight
            )
        packed = is_packed(batch)
        head, model = self.model.lm_head, self.model
        states = (
            packed_decoder_states(model, batch)
            if packed
            else self._run(model.model, batch).last_hidden_state
        )
        arguments = states, head.weight, head.bias, labels, self.smoothing, self.r_drop_weight
        if self.loss_in_graph is not None and "label_places" not in batch:
            return self.loss_in_graph(*arguments)
        return projected_cross_entropy(*arguments, batch["label_places"])

    def _run(self, model: "PreTrainedModel", batch: Batch) -> Any:
        """Return the outputs of the model, or of its two stacks alone."""
        mask, input_ids = batch.get("attention_mask"), batch["input_ids"]
        # Without a mask, the model would derive one from `input_ids`.
        embeds = self.model.get_encoder().embed_tokens(input_ids) if mask is None else None
        with without_cudnn_attention():  # batches have many shapes
            return model(
                input_ids=input_ids if mask is not None else None,
                inputs_embeds=embeds,
                attention_mask=mask,
                decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(batch["labels"]),
                use_cache=False,
            )


def create_loss_terms(recipe: Recipe, config: VanillaTransformerConfig) -> list[LossTerm]:
    """Return the terms of a recipe: guided alignment, and those that it names."""
    terms: list[LossTerm] = []
    if recipe.data.train_alignments is not None:
        from vanilla_transformer.extensions.alignments.guided_alignment import (
            create_guided_alignment,
        )

        terms.append(create_guided_alignment(recipe, config))
    return terms + [
        find_loss_term(function_name)(recipe, config)
        for function_name in recipe.optimization.loss_terms or ()
    ]


def check_r_drop(weight: float, config: "PreTrainedConfig") -> None:
    """Refuse R-Drop for a model without dropout."""
    if weight and not any(getattr(config, name) for name in DROPOUTS):
        requirement = "must be given for a model with dropout, got it for one without"
        raise UserError(
            f"`r_drop_weight` {requirement}: both passes would be the same. Set `dropout`, or "
            "leave it out."
        )


def repeat_batch(batch: Batch) -> Batch:
    """Return a prepared batch with all rows twice: all of them, then all of them again."""
    repeated = {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
    labels = batch["labels"].numel()
    # The indices in flattened tensors, which become twice as long.
    for name, size in (
        ("label_places", labels),
        ("link_places", labels * batch["input_ids"].shape[1]),
    ):
        if name in batch:
            repeated[name][len(batch[name]) :] += size
    return repeated


def cross_entropy_in_graph(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    r_drop_weight: float = 0.0,
) -> SummedLoss:
    """Compute the loss of [`projected_cross_entropy`] in few operations, with the logits of all
    tokens in memory.

    It is to be compiled for a GPU, where the operations of each chunk would cost a quarter of a
    step. Autograd gives its gradient.
    """
    return cross_entropy(
        nn.functional.linear(states, weight, bias), labels, smoothing, r_drop_weight
    )


def cross_entropy(
    logits: Tensor, labels: Tensor, smoothing: float, r_drop_weight: float = 0.0
) -> SummedLoss:
    """Sum the loss of [`projected_cross_entropy`], given all logits. Autograd gives its gradient.

    Args:
        logits (`torch.Tensor` of shape `(batch_size, target_length, vocab_size)`)
    """
    logits, labels = logits.flatten(end_dim=-2).float(), labels.flatten()  # (N, V), (N,)
    counts = labels != IGNORED_LABEL
    logsumexp, label_logit = _normalizer_and_label(logits, labels)
    plain = (logsumexp - label_logit).where(counts, 0.0).sum()
    uniform = (logsumexp - logits.mean(dim=-1)).where(counts, 0.0).sum()
    smoothed = (1.0 - smoothing) * plain + smoothing * uniform
    if r_drop_weight:
        # (2, N / 2, V)
        log_probabilities = (logits - logsumexp.unsqueeze(-1)).unflatten(0, (2, -1))
        first, second = log_probabilities.exp()
        divergence = ((first - second) * (log_probabilities[0] - log_probabilities[1])).sum(
            dim=-1
        ) / 2  # (N / 2,)
        smoothed = smoothed + r_drop_weight * divergence.where(counts[: len(divergence)], 0.0).sum()
    return SummedLoss(smoothed, plain.detach())


def _normalizer_and_label(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return `log Σ exp(logit)` of each token and the logit of its label, `(N,)`; any logit for an
    ignored label.
    """
    if not torch.compiler.is_compiling():
        return logits.logsumexp(dim=-1), logits.gather(
            -1, labels.clamp(min=0).unsqueeze(-1)
        ).squeeze(-1)
    # Inductor fuses these operations into passes over the logits, and makes a matrix for the
    # gradient of a gather.
    highest = logits.detach().amax(dim=-1, keepdim=True)
    normalizer = (logits - highest).exp().sum(dim=-1, keepdim=True).log() + highest
    is_label = torch.arange(logits.shape[-1], device=logits.device) == labels.unsqueeze(-1)
    return normalizer.squeeze(-1), logits.where(is_label, 0.0).sum(dim=-1)


@torch.compiler.disable
def projected_cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    r_drop_weight: float = 0.0,
    places: Tensor | None = None,
) -> SummedLoss:
    """Sum the cross-entropy of `states Wᵀ + b` against `(1 - ε) · onehot(label) + ε / V` (Szegedy
    et al., 2016).

    The mass ε is spread over all V entries, the correct one included. Tensor2Tensor spreads it over
    the V - 1 others, a difference of ε / V.

    The gradient is known as soon as the loss is. Logits are therefore computed for a chunk of
    tokens, turned into their gradient and multiplied into the gradients of states, weight and bias
    before the next chunk; padding has no logits. Matrix products run in autocast's dtype. Sums and
    the weight's gradient are float32. Only `smoothed` can be differentiated, and only once.

    Args:
        states (`torch.Tensor` of shape `(batch_size, target_length, d_model)`): The decoder's
        output. weight (`torch.Tensor` of shape `(vocab_size, d_model)`), bias (`torch.Tensor` of
        shape `(vocab_size,)`) labels (`torch.LongTensor` of shape `(batch_size, target_length)`):
        -100 at padding. smoothing (`float`): ε; the paper uses 0.1.
        r_drop_weight (`float`):
            α of R-Drop, for a batch of [`repeat_batch`]: the factor of the divergence between the
            predictions for a token in both halves, which is added to the smoothed loss of both.
        places (`torch.LongTensor` of shape `(tokens,)`):
            The indices in `labels.flatten()` of all labels but -100. By default they are searched,
            for which the host waits for a GPU.
    """
    if places is None:
        places = (labels.flatten() != IGNORED_LABEL).nonzero().flatten()
    if r_drop_weight:
        places = places.view(2, -1).t().flatten()  # both predictions for a token follow each other
    states = states.flatten(end_dim=-2).index_select(0, places)
    labels = labels.flatten().index_select(0, places)
    return SummedLoss(
        *_ProjectedCrossEntropy.apply(states, weight, bias, labels, smoothing, r_drop_weight)
    )


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Return both losses of states `(N, D)`, weight `(V, D)`, bias `(V,)` and labels `(N,)`."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        r_drop_weight: float,
    ) -> tuple[Tensor, Tensor]:
        device, dtype = states.device.type, weight.dtype
        if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.float16:
            # Not float16, in which small gradients would vanish
            dtype = torch.get_autocast_dtype(device)
        gradients: list[Tensor | None] = [
            torch.zeros_like(tensor, dtype=torch.float32) if needed and tensor is not None else None
            for tensor, needed in zip((states, weight, bias), ctx.needs_input_grad, strict=False)
        ]
        smoothed, plain = states.new_zeros(2, dtype=torch.float32)
        with torch.autocast(device, enabled=False):
            weight_cast = weight.to(dtype)
            per_chunk = max(
                weight.numel(), _LOGITS_PER_CHUNK if device == "cpu" else _LOGITS_PER_CHUNK_GPU
            )
            if device == "cpu" and dtype == torch.bfloat16:
                # The fewest equal chunks.
                chunks = max(1, math.ceil(len(states) / max(1, per_chunk // len(weight))))
                rows_per_chunk = round_up(max(1, math.ceil(len(states) / chunks)), _ROWS_UNIT)
                states = nn.functional.pad(states, (0, 0, 0, -len(states) % rows_per_chunk))
                per_chunk = rows_per_chunk * len(weight)
            for chunk in _row_chunks((len(states), len(weight)), per_chunk):
                rows = states[chunk].to(dtype)  # (n, D)
                logits = nn.functional.linear(
                    rows, weight_cast, None if bias is None else bias.to(dtype)
                )  # (n, V)
                labeled = len(labels[chunk])  # the others fill the last chunk
                losses = _logits_to_gradient_(
                    logits[:labeled], labels[chunk], smoothing, r_drop_weight
                )
                logits[labeled:] = 0.0
                smoothed, plain = smoothed + losses.smoothed, plain + losses.plain
                grad_states, grad_weight, grad_bias = gradients
                if grad_states is not None:
                    of_chunk = grad_states[chunk]
                    of_chunk.copy_((logits @ weight_cast)[: len(of_chunk)])
                if grad_weight is not None:
                    grad_weight += logits.t() @ rows
                if grad_bias is not None:
                    grad_bias += logits.sum(dim=0, dtype=torch.float32)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_smoothed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # On a CPU a scaling tensor of another dtype is slow; on a GPU reading its value would wait
        # for the GPU.
        scale = grad_smoothed.item() if grad_smoothed.device.type == "cpu" else grad_smoothed
        # In place, since the weight's gradient is large. Autograd raises an error at a second
        # backward pass.
        scaled = [
            None if gradient is None else gradient.mul_(scale) for gradient in ctx.saved_tensors
        ]
        return *scaled, None, None, None


def _row_chunks(shape: Sequence[int], numbers_per_chunk: int) -> list[slice]:
    """Cut the rows of a matrix into chunks of about `numbers_per_chunk` numbers, which keep pairs
    of rows together.
    """
    rows = round_up(max(1, numbers_per_chunk // shape[1]), 2)
    return [slice(first, first + rows) for first in range(0, shape[0], rows)]


def _logits_to_gradient_(
    logits: Tensor, labels: Tensor, smoothing: float, r_drop_weight: float
) -> SummedLoss:
    """Return the losses of logits `(N, V)` and overwrite them with their gradient, chunk by
    chunk.
    """
    smoothed, plain = logits.new_zeros(2, dtype=torch.float32)
    in_cache = _LOGITS_IN_CACHE if logits.device.type == "cpu" else logits.numel()
    for chunk in _row_chunks(logits.shape, in_cache):
        losses = _rows_to_gradient_(
            logits[chunk], labels[chunk].unsqueeze(-1), smoothing, r_drop_weight
        )
        smoothed, plain = smoothed + losses.smoothed, plain + losses.plain
    return SummedLoss(smoothed, plain)


def _rows_to_gradient_(
    rows: Tensor, labels: Tensor, smoothing: float, r_drop_weight: float
) -> SummedLoss:
    """Return the losses of rows `(N, V)` and overwrite them with their gradient.

    It is softmax minus the smoothed labels `(N, 1)`, plus the gradient of R-Drop's divergence
    between pairs of rows.
    """
    logits = rows.float()
    mean_logit, label_logit = logits.mean(dim=-1), logits.gather(-1, labels).squeeze(-1)  # (N,)
    highest = logits.amax(dim=-1)
    probabilities = logits.softmax(dim=-1)
    # log Σ exp(logit) from the highest probability, which is at least 1 / V
    logsumexp = highest - probabilities.amax(dim=-1).log()  # (N,)
    divergence: Tensor | float = 0.0
    if r_drop_weight:
        passes = (values.unflatten(0, (-1, 2)) for values in (logits, logsumexp, probabilities))
        divergences, gradient = divergence_with_gradient(*passes)
        divergence = divergences.sum()
        probabilities.add_(gradient.flatten(end_dim=1), alpha=r_drop_weight)
    plain = (logsumexp - label_logit).sum()
    uniform = (logsumexp - mean_logit).sum()
    smoothed = (1.0 - smoothing) * plain + smoothing * uniform
    probabilities.sub_(smoothing / logits.shape[-1])
    probabilities.scatter_add_(-1, labels, torch.full_like(probabilities[:, :1], smoothing - 1.0))
    rows.copy_(probabilities)
    return SummedLoss(smoothed + r_drop_weight * divergence, plain)


def divergence_with_gradient(
    logits: Tensor, logsumexp: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean of both divergences of each token, `(N,)`, and its gradient with respect to
    the logits.

    Args:
        logits, probabilities (`torch.Tensor` of shape `(N, 2, V)`), logsumexp (`torch.Tensor` of
            shape `(N, 2)`): Of both passes.
    """
    first, second = probabilities.unbind(dim=1)
    # (N, V)
    log_ratio = logits[:, 0] - logits[:, 1] - (logsumexp[:, 0] - logsumexp[:, 1]).unsqueeze(-1)
    forward = (first * log_ratio).sum(dim=-1, keepdim=True)
    backward = -(second * log_ratio).sum(dim=-1, keepdim=True)
    change = first - second
    gradients = first * (log_ratio - forward) + change, -second * (log_ratio + backward) - change
    return (forward + backward).squeeze(-1) / 2, torch.stack(gradients, dim=1) / 2
