"""
Several models that decode together: the next token's probability is the weighted mean of their
probabilities.

    p(y | y_1, …, y_t, x) = Σ_k w_k p_k(y | y_1, …, y_t, x), where Σ_k w_k = 1

There is one search, whose step runs the decoder of each model. Each has its own memory of the
slots.
"""

import copy
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from vanilla_transformer.errors import UserError


class Ensemble(nn.Module):
    """
    Translation models with one vocabulary, which an [`Engine`] decodes as one model.

    What models do not share, such as the generation config and alignment heads, is the first one's.

    Args:
        models: Two or more models, of any sizes.
        weights: A positive number for each model; by default all are equal. Their sum may be any
            number.
    """

    def __init__(self, models: Sequence[Any], weights: Sequence[float] | None = None):
        super().__init__()
        if len(models) < 2:
            raise UserError(f"An ensemble must have 2 models or more, got {len(models)}.")
        self.weights = check_weights(weights, len(models))
        for number, model in enumerate(models[1:], start=2):
            _check_like_first(models[0], model, number)
        self.models = nn.ModuleList(models)
        self.config = copy.copy(models[0].config)
        self.generation_config = models[0].generation_config
        learned_positions = []
        for member in models:
            if getattr(member.config, "position_embedding_type", "") == "learned":
                learned_positions.append(member.config.max_position_embeddings)
        if learned_positions:  # as few positions as any model has learned
            self.config.position_embedding_type = "learned"
            self.config.max_position_embeddings = min(learned_positions)

    @property
    def first(self) -> Any:
        """The first model."""
        return self.models[0]

    @property
    def device(self) -> torch.device:
        return self.first.device

    @property
    def dtype(self) -> torch.dtype:
        return self.first.dtype

    def get_decoder(self) -> Any:
        """Return the first model's decoder, which has the alignment heads."""
        return self.first.get_decoder()

    def get_output_embeddings(self) -> Any:
        """Return the first model's output projection. All have as many rows."""
        return self.first.get_output_embeddings()


# A model that an engine decodes: ours or the library's, or several of them together.
DecodedModel: TypeAlias = PreTrainedModel | Ensemble


def members_of(model: DecodedModel) -> list[Any]:
    """Return the models of an ensemble, or a model that is alone."""
    return [*model.models] if isinstance(model, Ensemble) else [model]


def weights_of(model: DecodedModel) -> tuple[float, ...]:
    """Return the weights of an ensemble, or 1 for a model that is alone."""
    return model.weights if isinstance(model, Ensemble) else (1.0,)


def log_mean_probabilities(logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the logarithm of the weighted mean of the probabilities of several models, given the
    logits of each.
    """
    pairs = zip(logits, weights, strict=True)
    terms = [
        scores - (scores.logsumexp(dim=-1, keepdim=True) - math.log(weight))
        for scores, weight in pairs
    ]
    return reduce(torch.logaddexp, terms)


def check_weights(
    weights: Sequence[float] | None, count: int, name: str = "ensemble_weights"
) -> tuple[float, ...]:
    """Return the weights of so many models, divided by their sum; without any, equal ones.

    Args:
        name: Name of the option, for the error.
    """
    numbers = [1.0] * count if weights is None else list(weights)
    are_positive = True
    for number in numbers:
        if type(number) not in (int, float) or not 0 < number < math.inf:
            are_positive = False
    if len(numbers) != count or not are_positive:
        requirement = f"`{name}` must be {count} positive numbers, one for each model"
        raise UserError(f"{requirement}, got {weights}.")
    total = sum(numbers)
    return tuple(number / total for number in numbers)


def _vocabulary_facts(model: PreTrainedModel) -> dict[str, Any]:
    """Return what the models of an ensemble have in common."""
    generation_config = model.generation_config
    return {
        "source vocabulary": model.config.vocab_size,
        "target vocabulary": model.get_output_embeddings().weight.shape[0],
        "`source_eos`": getattr(model.config, "source_eos", None),
        "`decoder_start_token_id`": generation_config.decoder_start_token_id,
        "`eos_token_id`": generation_config.eos_token_id,
    }


def _check_like_first(first: PreTrainedModel, model: PreTrainedModel, number: int) -> None:
    for member in (first, model):
        if not getattr(member.config, "is_encoder_decoder", False):
            kind = type(member).__name__
            raise UserError(f"An ensemble needs translation models, got {kind}.")
    facts, facts_of_first = _vocabulary_facts(model), _vocabulary_facts(first)
    for name, ours in facts_of_first.items():
        theirs = facts[name]
        if ours != theirs:
            raise UserError(
                f"The models of an ensemble must have one vocabulary, but model 1 has {name} "
                f"{ours} and model {number} has {theirs}."
            )
