"""
Several models that decode together: the next token's probability is the weighted mean of their probabilities.

    p(y | y_1, …, y_t, x) = Σ_k w_k p_k(y | y_1, …, y_t, x), where Σ_k w_k = 1

There is one search. Each model has its own memory of the slots.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .static_decoder import AlignmentHeads, SlotMemory, StaticDecoder


class Ensemble(nn.Module):
    """
    Translation models with one vocabulary, which an [`Engine`] decodes as one model.

    What models do not share, such as the generation config and alignment heads, is the first one's.

    Args:
        models: Two or more models, of any sizes.
        weights: A positive number for each model; by default all are equal. Their sum may be any number.

    Raises:
        ValueError: There are too few models or weights, they have different vocabularies, or one is no translation
            model.
    """

    def __init__(self, models: Sequence[Any], weights: Sequence[float] | None = None):
        super().__init__()
        if len(models) < 2:
            raise ValueError(f"An ensemble must have 2 models or more, got {len(models)}.")
        self.weights = check_weights(weights, len(models))
        for place, model in enumerate(models[1:], start=2):
            _check_like_first(models[0], model, place)
        self.models = nn.ModuleList(models)
        self.config, self.generation_config = _shared_config(models), models[0].generation_config
        self.paper_parameters = getattr(models[0], "paper_parameters", ())

    @property
    def first(self) -> Any:
        """The first model."""
        return self.models[0]

    @property
    def device(self) -> torch.device:
        """The device of all models."""
        return self.first.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first model's weights."""
        return self.first.dtype

    def get_decoder(self) -> Any:
        """Return the first model's decoder, which has the alignment heads."""
        return self.first.get_decoder()

    def get_output_embeddings(self) -> Any:
        """Return the first model's output projection. All have as many rows."""
        return self.first.get_output_embeddings()


class EnsembleMemory(NamedTuple):
    """The memory of all slots for each decoder of an ensemble, with the interface of [`SlotMemory`]."""

    models: list[SlotMemory]

    @property
    def first(self) -> SlotMemory:
        """The memory of the first model."""
        return self.models[0]

    def rows(self) -> Iterator[Tensor]:
        """Yield the tensors that have a row for each slot."""
        for memory in self.models:
            yield from memory.rows()

    def prefilled(self) -> Iterator[Tensor]:
        """Yield the tensors that a source fills when it enters, in the order of [`prefill`]."""
        for memory in self.models:
            yield from memory.prefilled()

    def set_source_lengths(self, slots: Tensor | slice, lengths: Tensor | int) -> None:
        """Store how many tokens the sources in the given slots have."""
        for memory in self.models:
            memory.set_source_lengths(slots, lengths)


class EnsembleDecoder(nn.Module):
    """
    The decoders of an ensemble, with the interface of [`StaticDecoder`].

    Args:
        decoders: One for each model.
        weights: Of the models; their sum is 1.
    """

    def __init__(self, decoders: Sequence[StaticDecoder], weights: Sequence[float]):
        super().__init__()
        self.decoders, self._weights = nn.ModuleList(decoders), tuple(weights)

    def forward(self, tokens: Tensor, time: Tensor, done: Tensor, ancestors: Tensor, memory: EnsembleMemory) -> Tensor:
        """Compute the logarithm of the mean probabilities, `(B, N, V)`; see [`StaticDecoder.forward`]."""
        mean: Tensor | None = None
        for decoder, own, weight in zip(self.decoders, memory.models, self._weights, strict=True):
            logits = decoder(tokens, time, done, ancestors, own)
            term = logits - (logits.logsumexp(dim=-1, keepdim=True) - math.log(weight))
            mean = term if mean is None else torch.logaddexp(mean, term)
        assert mean is not None
        return mean

    def extra_repr(self) -> str:
        return f"weights={self._weights}"  # compiled steps depend on them


def members_of(model: Any) -> list[Any]:
    """Return the models of an ensemble, or a model that is alone."""
    return [*model.models] if isinstance(model, Ensemble) else [model]


def weights_of(model: Any) -> tuple[float, ...]:
    """Return the weights of an ensemble, or 1 for a model that is alone."""
    return model.weights if isinstance(model, Ensemble) else (1.0,)


def build_decoder(model: Any, alignment_heads: AlignmentHeads = ()) -> StaticDecoder | EnsembleDecoder:
    """Return the decoder of a model or of an ensemble, whose first model keeps the queries of alignment heads."""
    first, *others = members_of(model)
    decoder = StaticDecoder(first, alignment_heads)
    return EnsembleDecoder([decoder, *map(StaticDecoder, others)], model.weights) if others else decoder


def allocate_memory(
    model: Any, slots: int, beams: int, room: int, alignment_heads: AlignmentHeads = ()
) -> SlotMemory | EnsembleMemory:
    """Allocate the memory of a model or of an ensemble; see [`SlotMemory.empty`]."""
    first, *others = members_of(model)
    memory = SlotMemory.empty(first, slots, beams, room, alignment_heads)
    rest = [SlotMemory.empty(other, slots, beams, room) for other in others]
    return EnsembleMemory([memory, *rest]) if rest else memory


def check_weights(weights: Sequence[float] | None, count: int, name: str = "ensemble_weights") -> tuple[float, ...]:
    """Return the weights of so many models, divided by their sum; without any, equal ones.

    Args:
        name: Of the option, for the error.

    Raises:
        ValueError: Their number is another one, or one is not a positive number.
    """
    given = [1.0] * count if weights is None else list(weights)
    are_positive = all(type(each) in (int, float) and 0 < each < math.inf for each in given)
    if len(given) != count or not are_positive:
        raise ValueError(f"`{name}` must be {count} positive numbers, one for each model, got {weights}.")
    return tuple(each / sum(given) for each in given)


def _check_like_first(first: Any, model: Any, place: int) -> None:
    for each in (first, model):
        if not getattr(each.config, "is_encoder_decoder", False):
            raise ValueError(f"An ensemble needs translation models, got {type(each).__name__}.")
    rules = {
        "source vocabulary": lambda each: each.config.vocab_size,
        "target vocabulary": lambda each: each.get_output_embeddings().weight.shape[0],
        "`source_eos`": lambda each: getattr(each.config, "source_eos", None),
        "`decoder_start_token_id`": lambda each: each.generation_config.decoder_start_token_id,
        "`eos_token_id`": lambda each: each.generation_config.eos_token_id,
    }
    for name, value_of in rules.items():
        ours, theirs = value_of(first), value_of(model)
        if ours != theirs:
            raise ValueError(
                f"The models of an ensemble must have one vocabulary, but model 1 has {name} {ours} and model {place} "
                f"has {theirs}."
            )


def _shared_config(models: Sequence[Any]) -> Any:
    """Return the first configuration, with as few positions as any model has learned."""
    config = copy.copy(models[0].config)
    learned = [each.config for each in models if getattr(each.config, "position_embedding_type", "") == "learned"]
    if learned:
        config.position_embedding_type = "learned"
        config.max_position_embeddings = min(each.max_position_embeddings for each in learned)
    return config


__all__ = ["Ensemble", "EnsembleDecoder", "EnsembleMemory", "allocate_memory", "build_decoder", "check_weights"]
__all__ += ["members_of", "weights_of"]
