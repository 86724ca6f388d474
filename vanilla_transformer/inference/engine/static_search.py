"""
One step of greedy search, sampling or beam search of static shape, for all slots of the engine at once.

Beam search is section 6.1 of the paper.

Follows the rules of [`beam_search`], which are the library's: when a hypothesis is finished, which finished ones
are kept, and when a sentence is done. A slot that is done stays as it is until a new sentence enters.

Letters in shapes: B slots, N beams, C candidates, R room for target positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vanilla_transformer.generation_vanilla_transformer import length_penalty
from vanilla_transformer.inference.search.finished_hypotheses import UNLIKELY, pick
from vanilla_transformer.inference.search.lexical_constraints import (
    Candidates,
    Phrases,
    PhraseTokens,
    Progress,
    phrase_rows,
)
from vanilla_transformer.inference.search.sampling import SamplingOptions, sample
from vanilla_transformer.inference.search.top_k import argmax, top_continuations

from .device_copies import to_device
from .static_decoder import SlotMemory, StaticDecoder


@dataclass(frozen=True)
class SearchOptions:
    """
    Options of a search, the same for all sentences; see [`PaperGenerationMixin`] for the length penalty.

    Attributes:
        num_beams: 1 for greedy search and sampling.
        eos_token_ids: Tokens that end a hypothesis.
        early_stopping: As in a generation config: True, False or `"never"`.
        min_new_tokens: EOS may end a hypothesis only after so many other tokens.
        sampling: How to draw tokens, or None to take the most likely ones.
        constraint_tokens: Room for the tokens of the phrases that the hypotheses of a sentence must contain.
    """

    num_beams: int
    eos_token_ids: tuple[int, ...]
    length_penalty: float = 1.0
    length_penalty_type: str = "power"
    early_stopping: bool | str = False
    min_new_tokens: int = 0
    sampling: SamplingOptions | None = None
    constraint_tokens: int = 0

    def __post_init__(self) -> None:
        if self.constraint_tokens and self.num_beams == 1:
            raise ValueError("Constraints need beam search: `num_beams` must be 2 or more, got 1.")
        if self.sampling is not None and self.num_beams != 1:
            raise ValueError(f"Sampling needs `num_beams=1`, got {self.num_beams}.")

    def divisor(self, lengths: Tensor) -> Tensor:
        """Return the divisors of log-probabilities for lengths `(B,)`, as a column `(B, 1)`."""
        return length_penalty(lengths, self.length_penalty, self.length_penalty_type)[:, None]


class SearchState(NamedTuple):
    """
    The search of all slots, updated in place.

    Attributes:
        done: Whether a slot is done, or empty: `(B,)`.
        time: Position of the last tokens, `(B,)`; the start symbol is at 0.
        limits: Tokens that a hypothesis may have at most, `(B,)`.
        seeds: Of the samples, `(B,)`.
        last_tokens, scores: Of the running hypotheses, `(B, N)`; scores are log-probabilities.
        tokens: What each beam has written at each step, `(B, R, N)`.
        log_probabilities: Of the running hypotheses up to these tokens, `(B, R, N)`.
        ancestors: The beam of each step that a running hypothesis descends from, `(B, N, R)`.
        finished_ancestors: The same of the best finished hypotheses, `(B, N, R)`.
        finished_tokens, finished_lengths, finished_scores, is_finished: Their last tokens, numbers of tokens, scores
            with the length penalty, and whether there are so many, each `(B, N)`.
        phrases, progress: Phrases that hypotheses must contain, and what the running ones contain of them; or nothing.
    """

    done: Tensor
    time: Tensor
    limits: Tensor
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
    phrases: PhraseTokens | tuple[()] = ()
    progress: Progress | tuple[()] = ()

    @classmethod
    def empty(
        cls, slots: int, beams: int, room: int, device: torch.device, constraint_tokens: int = 0
    ) -> "SearchState":
        """Return a state in which all slots are empty."""
        phrases = PhraseTokens.empty(slots, constraint_tokens, device) if constraint_tokens else ()

        def full(value: Any, *shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.full((slots, *shape), value, dtype=dtype, device=device)

        return cls(
            done=full(True, dtype=torch.bool),
            time=full(0),
            limits=full(1),
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
            phrases=phrases,
            progress=phrases.begin(beams) if phrases else (),
        )

    def start(
        self, slots: Tensor, limits: Tensor, seeds: Tensor, start_token: int, phrases: Sequence[Phrases] = ()
    ) -> None:
        """Start the search of new sentences in the given slots, which are at time 0."""
        self.done[slots] = False
        self.limits[slots] = limits
        self.seeds[slots] = seeds
        self.last_tokens[slots] = start_token
        self.scores[slots] = UNLIKELY
        self.scores[slots, 0] = 0.0  # at first all beams are the same
        self.finished_scores[slots] = UNLIKELY
        self.finished_lengths[slots] = 0
        self.is_finished[slots] = False
        if self.phrases and self.progress:
            rows = zip(*(phrase_rows(each, self.phrases.tokens.shape[1]) for each in phrases), strict=True)
            for tensor, values in zip(self.phrases, rows, strict=True):
                tensor[slots] = to_device(values, tensor.device)
            for tensor, first in zip(self.progress, self.phrases.begin(self.scores.shape[1]), strict=True):
                tensor[slots] = first[slots]

    def stop(self, slots: Tensor | slice) -> None:
        """Empty the given slots. They return to time 0, which any room can hold."""
        self.done[slots] = True
        self.time[slots] = 0


class SearchStep(nn.Module):
    """
    Advance every slot by one token: `state` and `memory` are updated in place, and nothing is returned.

    Args:
        decoder: Computes the logits.
        options: The search.
    """

    eos: Tensor

    def __init__(self, decoder: StaticDecoder, options: SearchOptions):
        super().__init__()
        self.decoder, self.options, self.beams = decoder, options, options.num_beams
        self._filters = [] if options.sampling is None else options.sampling.filters()
        self.register_buffer("eos", torch.tensor(options.eos_token_ids), persistent=False)

    def forward(self, state: SearchState, memory: SlotMemory) -> tuple[()]:
        sizes = state.ancestors.shape  # (B, N, R)
        slots, beams, steps = (torch.arange(size, device=self.eos.device) for size in sizes)
        here = steps == state.time[:, None, None]  # (B, 1, R)
        ancestors = torch.where(here, beams[:, None], state.ancestors)  # (B, N, R)
        state.tokens.index_put_((slots, state.time), state.last_tokens)
        state.log_probabilities.index_put_((slots, state.time), state.scores)
        logits = self.decoder(state.last_tokens, state.time, state.done, ancestors, memory)  # (B, N, V)
        log_scale = state.scores - logits.logsumexp(dim=-1)  # (B, N): from logits to log-probabilities of hypotheses
        if self.options.min_new_tokens:
            too_short = (state.time < self.options.min_new_tokens)[:, None, None]
            logits = torch.where(too_short & self._is_eos(logits), -torch.inf, logits)
        if state.phrases and state.progress:
            is_incomplete = (state.phrases.missing(state.progress) > 0)[:, :, None]
            logits = torch.where(is_incomplete & self._is_eos(logits), -torch.inf, logits)
        advance = self._advance_one if self.beams == 1 else self._advance_beams
        advance(state, logits, log_scale, ancestors)
        state.time.copy_(torch.where(state.done, state.time, state.time + 1))
        return ()

    def _is_eos(self, logits: Tensor) -> Tensor:
        return _one_of(torch.arange(logits.shape[2], device=logits.device), self.eos)  # (V,)

    def _advance_one(self, state: SearchState, logits: Tensor, log_scale: Tensor, ancestors: Tensor) -> None:
        length = state.time + 1
        tokens = self._choose(logits[:, 0], state)[:, None]  # (B, 1)
        scores = logits[:, 0].gather(1, tokens) + log_scale
        ends = _one_of(tokens, self.eos) | (length >= state.limits)[:, None]
        _store(
            state,
            state.done[:, None] | ~ends,
            finished_ancestors=ancestors,
            finished_tokens=tokens,
            finished_lengths=length[:, None],
            finished_scores=scores / self.options.divisor(length),
        )
        state.done.logical_or_(ends[:, 0])
        _store(state, state.done[:, None], scores=scores, last_tokens=tokens)

    def _choose(self, logits: Tensor, state: SearchState) -> Tensor:
        """Return the most likely tokens of `logits` `(B, V)`, or samples."""
        if self.options.sampling is None:
            return argmax(logits)
        for each in self._filters:
            logits = each(None, logits)
        return sample(logits, state.seeds, state.time)

    def _advance_beams(self, state: SearchState, logits: Tensor, log_scale: Tensor, ancestors: Tensor) -> None:
        length = state.time + 1
        candidates = max(2, 1 + len(self.options.eos_token_ids)) * self.beams
        best = Candidates(*top_continuations(logits, log_scale, candidates))
        (scores, parents, tokens), progress = self._constrain(state, best, logits, log_scale)
        ends = _one_of(tokens, self.eos) | (length >= state.limits)[:, None]

        # Candidates that end, of the best N, replace worse finished hypotheses.
        order = torch.arange(candidates, device=ends.device)
        finishes = ends & (order < self.beams)
        if progress is not None:
            finishes = finishes & (scores > UNLIKELY / 2)  # the others lack phrases
        final = scores / self.options.divisor(length) + ~finishes * UNLIKELY
        finished_scores, kept = torch.cat([state.finished_scores, final], dim=1).topk(self.beams)
        is_finished = torch.cat([state.is_finished, finishes], dim=1).gather(1, kept)
        lengths = torch.cat([state.finished_lengths, length[:, None].expand_as(ends)], dim=1)
        last_tokens = torch.cat([state.finished_tokens, tokens], dim=1)
        lines = torch.cat([order[: self.beams].expand_as(state.scores), parents + self.beams], dim=1).gather(1, kept)
        _store(
            state,
            state.done[:, None],
            finished_ancestors=pick(torch.cat([state.finished_ancestors, ancestors], dim=1), lines),
            finished_tokens=last_tokens.gather(1, kept),
            finished_lengths=lengths.gather(1, kept),
            finished_scores=finished_scores,
            is_finished=is_finished,
        )

        # The others continue, unless the sentence is done.
        scores = scores + ends * UNLIKELY
        chosen = (scores if progress is None else -(order + ends * candidates)).topk(self.beams)[1]
        running = scores.gather(1, chosen)
        best_running = running.amax(dim=1, keepdim=True)
        can_improve = self._can_improve(best_running, finished_scores, is_finished, state.limits, length)
        now_done = ~can_improve | ends.all(dim=1)
        if self.options.early_stopping is True:
            now_done = now_done | is_finished.all(dim=1)
        state.done.logical_or_(now_done)
        _store(
            state,
            state.done[:, None],
            ancestors=pick(ancestors, parents.gather(1, chosen)),
            scores=running,
            last_tokens=tokens.gather(1, chosen),
        )
        if progress is not None:
            for old, new in zip(state.progress, progress, strict=True):
                old.copy_(torch.where(state.done[:, None, None], old, pick(new, chosen)))

    def _constrain(
        self, state: SearchState, best: Candidates, logits: Tensor, log_scale: Tensor
    ) -> tuple[Candidates, Progress | None]:
        """Return the candidates that get beams, in order, and what they contain of the phrases."""
        if not state.phrases or not state.progress:
            return best, None
        every = state.phrases.add_candidates(best, logits, log_scale, state.progress)
        ordered, progress = state.phrases.allocate(every, state.progress, state.limits - state.time - 1)
        count = best.scores.shape[1]
        return Candidates(*(each[:, :count] for each in ordered)), Progress(*(each[:, :count] for each in progress))

    def _can_improve(
        self, best: Tensor, finished_scores: Tensor, is_finished: Tensor, limits: Tensor, length: Tensor
    ) -> Tensor:
        """Tell in which slots a running hypothesis could still beat the worst finished one, `(B,)`."""
        farthest = self.options.early_stopping == "never" and self.options.length_penalty > 0.0
        best_possible = best / self.options.divisor(limits if farthest else length)
        worst = torch.where(is_finished, finished_scores.amin(dim=1, keepdim=True), UNLIKELY)
        return (best_possible > worst).any(dim=1)


def _store(state: SearchState, unless: Tensor, **values: Tensor) -> None:
    """Update the named tensors of a state in place, except in slots where `unless`, `(B, 1)`, is True."""
    for name, value in values.items():
        old = getattr(state, name)
        old.copy_(torch.where(unless if old.dim() == 2 else unless[:, None], old, value))


def _one_of(tokens: Tensor, choices: Tensor) -> Tensor:
    return (tokens[..., None] == choices).any(dim=-1)


__all__ = ["SearchOptions", "SearchState", "SearchStep"]
