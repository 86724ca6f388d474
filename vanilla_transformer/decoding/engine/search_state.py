"""
The tensors of the engine's search, for all slots at once.

Letters in shapes: B slots, N beams, R room for target positions.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.generation_vanilla_transformer import length_penalty
from vanilla_transformer.machine.transfers import HostCopy, fill_rows

from .search_options import SearchOptions
from .top_k import UNLIKELY


class ModelScores(NamedTuple):
    """Log-probabilities of the running and of the finished hypotheses, `(B, N)` each."""

    running: Tensor
    finished: Tensor


class SearchState(NamedTuple):
    """
    The search of all slots, updated in place.

    Attributes:
        done: Whether a slot is done, or empty: `(B,)`.
        time: Position of the last tokens, `(B,)`; the start symbol is at 0.
        limits: Tokens that a hypothesis may have at most, `(B,)`.
        counts: Hypotheses that are returned, `(B,)`.
        seeds: Seeds of the samples, `(B,)`.
        last_tokens, scores: Of the running hypotheses, `(B, N)`; scores are log-probabilities.
        tokens: What each beam has written at each step, `(B, R, N)`.
        log_probabilities: Log-probabilities of the running hypotheses up to these tokens,
            `(B, R, N)`.
        ancestors: The beam of each step that a running hypothesis descends from, `(B, N, R)`.
        finished_ancestors: The same of the best finished hypotheses, `(B, N, R)`.
        finished_tokens, finished_lengths, finished_scores, is_finished: Their last tokens, numbers
            of tokens, scores with the length penalty, and whether there are so many, each `(B, N)`.
        model_scores: [`ModelScores`] if `scores` are not log-probabilities; otherwise `()`, in
            which `torch.export` sees no tensor, as it would in None.
        features: What each [`SearchFeature`] has allocated.
    """

    done: Tensor
    time: Tensor
    limits: Tensor
    counts: Tensor
    seeds: Tensor
    last_tokens: Tensor
    scores: Tensor
    tokens: Tensor
    log_probabilities: Tensor
    ancestors: Tensor
    finished_ancestors: Tensor
    finished_tokens: Tensor
    finished_lengths: Tensor
    finished_scores: Tensor
    is_finished: Tensor
    model_scores: ModelScores | tuple[()]
    features: list[Any]

    @classmethod
    def empty(
        cls, slots: int, room: int, device: torch.device, options: SearchOptions
    ) -> "SearchState":
        """Return a state in which all slots are empty."""
        beams = options.num_beams

        def full(value: bool | float, *shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.full((slots, *shape), value, dtype=dtype, device=device)

        return cls(
            done=full(True, dtype=torch.bool),
            time=full(0),
            limits=full(1),
            counts=full(1),
            seeds=full(0),
            last_tokens=full(0, beams),
            scores=full(0.0, beams, dtype=torch.float32),
            tokens=full(0, room, beams),
            log_probabilities=full(0.0, room, beams, dtype=torch.float32),
            ancestors=full(0, beams, room),
            finished_ancestors=full(0, beams, room),
            finished_tokens=full(0, beams),
            finished_lengths=full(0, beams),
            finished_scores=full(UNLIKELY, beams, dtype=torch.float32),
            is_finished=full(False, beams, dtype=torch.bool),
            model_scores=ModelScores(
                *(full(0.0, beams, dtype=torch.float32) for _ in ModelScores._fields)
            )
            if options.changes_scores
            else (),
            features=[feature.allocate(slots, beams, room, device) for feature in options.features],
        )

    def start(
        self, slots: Tensor, limits: Tensor, counts: Tensor, seeds: Tensor, start_token: int
    ) -> None:
        """Start the search of new sentences in the given slots, which are at time 0."""
        self.limits[slots] = limits
        self.counts[slots] = counts
        self.seeds[slots] = seeds
        fill_rows(self.done, slots, False)
        fill_rows(self.last_tokens, slots, start_token)
        fill_rows(self.scores, slots, UNLIKELY)
        fill_rows(self.scores[:, :1], slots, 0.0)  # at first all beams are the same
        fill_rows(self.finished_scores, slots, UNLIKELY)
        fill_rows(self.finished_lengths, slots, 0)
        fill_rows(self.is_finished, slots, False)
        for scores in self.model_scores:
            fill_rows(scores, slots, 0.0)


class Hypothesis(NamedTuple):
    """
    A translation or a continuation, as tokens, with the model's log-probabilities in nats.

    Options such as `min_new_tokens` do not change log-probabilities.

    Attributes:
        tokens: The generated tokens, EOS included.
        score: `log_probability` divided by the length penalty.
        log_probability: The sum of `token_log_probabilities`.
        token_log_probabilities: The log-probability of each token, given the source and the tokens
            before it.
        attention: Attention of the alignment heads to the tokens of the source when each token was
            predicted; None unless the engine keeps `alignments`.
    """

    tokens: list[int]
    score: float
    log_probability: float
    token_log_probabilities: list[float]
    attention: list[list[float]] | None = None


def read_hypotheses(
    state: SearchState, slots: Tensor, count: int, options: SearchOptions
) -> list[list[Hypothesis]]:
    """Return the `count` best finished hypotheses of each given slot, best first."""
    penalty = partial(
        length_penalty, alpha=options.length_penalty, penalty_type=options.length_penalty_type
    )
    finished = slots[:, None], torch.arange(count, device=slots.device)
    lines = state.finished_ancestors[finished].transpose(1, 2)  # (slots, R, count)
    written = state.tokens[slots].gather(2, lines).transpose(1, 2)  # (slots, count, R)
    before = state.log_probabilities[slots].gather(2, lines).transpose(1, 2)
    lengths = state.finished_lengths[finished]  # (slots, count)
    scores = state.finished_scores[finished]  # (slots, count)
    last = (lengths - 1).clamp(min=0)
    tokens = _shifted(written, last, state.finished_tokens[finished])
    totals = (
        state.model_scores.finished[finished]
        if state.model_scores
        else scores * options.divisor(last + 1)
    )
    token_log_probabilities = _shifted(before, last, totals) - before
    columns = HostCopy(tokens, token_log_probabilities, lengths, scores).wait()
    results = []
    for slot in zip(*columns, strict=True):
        hypotheses = []
        for line, values, length, score in zip(*slot, strict=True):
            values = values[:length]
            log_probability = score * penalty(max(1, length))
            if state.model_scores:
                log_probability = sum(values)
            hypotheses.append(Hypothesis(line[:length], score, log_probability, values))
        results.append(hypotheses)
    return results


def _shifted(values: Tensor, last: Tensor, last_values: Tensor) -> Tensor:
    """Move values `(slots, count, R)` one position to the front, and put `last_values` at the
    positions `last`.
    """
    return torch.roll(values, -1, dims=2).scatter(2, last[:, :, None], last_values[:, :, None])
