"""The hypotheses that the engine returns, read from the state of its search."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.generation_vanilla_transformer import length_penalty

from .device_copies import HostCopy
from .search_options import SearchOptions
from .search_state import SearchState


class Hypothesis(NamedTuple):
    """
    A translation or a continuation, as tokens, with the model's log-probabilities in nats.

    Options such as `min_new_tokens` do not change log-probabilities.

    Attributes:
        tokens: The generated tokens, EOS included.
        score: `log_probability` divided by the length penalty.
        log_probability: The sum of `token_log_probabilities`.
        token_log_probabilities: The log-probability of each token, given the source and the tokens before it.
        attention: For each token, how the alignment heads attended to the tokens of the source when it was predicted;
            None unless the engine keeps `alignments`.
    """

    tokens: list[int]
    score: float
    log_probability: float
    token_log_probabilities: list[float]
    attention: list[list[float]] | None = None


def read_hypotheses(state: SearchState, slots: Tensor, count: int, options: SearchOptions) -> list[list[Hypothesis]]:
    """Return the `count` best finished hypotheses of each given slot, best first."""
    penalty = partial(length_penalty, alpha=options.length_penalty, penalty_type=options.length_penalty_type)
    finished = state.finished(slots, count)
    lines = finished.ancestors.transpose(1, 2)  # (slots, R, count)
    written = state.tokens[slots].gather(2, lines).transpose(1, 2)  # (slots, count, R)
    before = state.log_probabilities[slots].gather(2, lines).transpose(1, 2)
    lengths, scores = finished.lengths, finished.scores
    last = (lengths - 1).clamp(min=0)
    tokens = _shifted(written, last, finished.tokens)
    totals = finished.model_scores[0] if finished.model_scores else scores * penalty(last + 1)
    token_log_probabilities = _shifted(before, last, totals) - before
    columns = HostCopy(tokens, token_log_probabilities, lengths, scores).wait()
    return [
        [
            Hypothesis(
                tokens=line[:length],
                score=score,
                log_probability=sum(each[:length]) if state.model_scores else score * penalty(max(1, length)),
                token_log_probabilities=each[:length],
            )
            for line, each, length, score in zip(*rows, strict=True)
        ]
        for rows in zip(*columns, strict=True)
    ]


def _shifted(values: Tensor, last: Tensor, last_values: Tensor) -> Tensor:
    """Move values `(slots, count, R)` one position to the front, and put `last_values` at the positions `last`."""
    return torch.roll(values, -1, dims=2).scatter(2, last[:, :, None], last_values[:, :, None])


__all__ = ["Hypothesis", "read_hypotheses"]
