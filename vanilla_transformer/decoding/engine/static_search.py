"""
One step of greedy search, sampling or beam search of static shape, for all slots of the engine at
once.

Beam search is section 6.1 of the paper.

Follows the library's rules: when a hypothesis is finished, which finished ones are kept, and when a
sentence is done. Differs from Tensor2Tensor, as the library does: a hypothesis that the length
limit cuts off competes as if it were finished; there it counts only if no hypothesis has ended. A
slot that is done stays as it is until a new sentence enters.

A wide step of a search with one beam reads several tokens of each slot, see [`drafts`].

Letters in shapes: B slots, N beams, C candidates, R room for target positions, V vocabulary, K
tokens that a wide step reads.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from vanilla_transformer.decoding.ensemble import log_mean_probabilities

from .drafts import find_drafts
from .sampling import sample
from .search_options import SearchOptions
from .search_state import ModelScores, SearchState
from .static_decoder import SlotMemory, StaticDecoder
from .top_k import UNLIKELY, Candidates, argmax, log_sums, pick, top_continuations

# What options and features read of a state
_KNOWN = ("limits", "seeds", "scores", "tokens", "ancestors", "model_scores", "features")


class _Options(NamedTuple):
    """
    The tokens from which a search chooses.

    Attributes:
        logits: Logits by which it chooses, `(B, N, V)`.
        own_logits: Logits of the model, `(B, N, V)`.
        log_scale, own_log_scale: Added to logits, they give the scores and the log-probabilities of
            hypotheses with one more token, `(B, N)`.
    """

    logits: Tensor
    own_logits: Tensor
    log_scale: Tensor
    own_log_scale: Tensor

    def model_scores(self, parents: Tensor, tokens: Tensor) -> Tensor:
        """Return the log-probabilities of the given beams with one more token, `(B, C)`."""
        slots = torch.arange(parents.shape[0], device=parents.device)[:, None]
        return self.own_logits[slots, parents, tokens] + self.own_log_scale.gather(1, parents)


class SearchStep(nn.Module):
    """
    Advance every slot by one token: `state` and `memory` are updated in place, and nothing is
    returned.

    Args:
        decoders: The decoder of each model.
        options: The search.
        weights: Weights of the models of an ensemble.

    Attributes:
        width: Tokens of a slot by which the step advances it at most.
    """

    eos: Tensor
    width = 1

    def __init__(
        self,
        decoders: Sequence[StaticDecoder],
        options: SearchOptions,
        weights: Sequence[float] = (1.0,),
    ):
        super().__init__()
        self.decoders, self._weights = nn.ModuleList(decoders), tuple(weights)
        self.options, self.beams = options, options.num_beams
        never_heuristic = options.early_stopping == "never" or options.length_penalty <= 0.0
        self._is_bounded = never_heuristic and not options.features
        self._ranks = any(feature.ranks_candidates for feature in options.features)
        self._filters = [] if options.sampling is None else options.sampling.filters()
        self.register_buffer("eos", torch.tensor(options.eos_token_ids), persistent=False)

    def widen(self, width: int) -> "SearchStep":
        """Return the same step for several tokens of a slot."""
        step = copy.copy(self)
        step.width = width
        return step

    def forward(self, state: SearchState, memory: Sequence[SlotMemory]) -> tuple[()]:
        ancestors = state.ancestors
        if self.beams > 1:
            beams, steps = (
                torch.arange(size, device=self.eos.device) for size in ancestors.shape[1:]
            )
            here = steps == state.time[:, None, None]  # (B, 1, R)
            ancestors = torch.where(here, beams[:, None], ancestors)  # (B, N, R)
        if self.width == 1:
            logits = self._logits(state.last_tokens, state.time, state.done, ancestors, memory)
            slots = torch.arange(state.time.shape[0], device=self.eos.device)
            state.tokens.index_put_((slots, state.time), state.last_tokens)
            running = state.model_scores.running if state.model_scores else state.scores
            state.log_probabilities.index_put_((slots, state.time), running)
            self._choose(self._options(logits, state), state, ancestors)
        else:
            options, tokens = self._read_drafts(state, memory)
            self._choose(options, state, ancestors, tokens)
        for feature, feature_state in zip(self.options.features, state.features, strict=True):
            feature.end_step(state, feature_state)
        return ()

    def _read_drafts(
        self, state: SearchState, memory: Sequence[SlotMemory]
    ) -> tuple["_Options", Tensor]:
        """
        Advance every slot by the next tokens of its draft, as far as the search chooses these, and
        return what it chooses from after the last of them, and its choice, `(B, 1)`.

        The decoders read the tokens at once, and the search chooses a token after each of them as
        if it had chosen those before it.
        """
        drafts: Any = find_drafts(self.options.features, state.features)
        sizes = state.time.shape[0], self.width
        slots, steps = (torch.arange(size, device=self.eos.device) for size in sizes)
        read = torch.cat([state.last_tokens, drafts.next_tokens(self.width - 1)], dim=1)  # (B, K)
        times, is_done = state.time[:, None] + steps, state.done[:, None]
        # Slots that are done may have room for no more.
        places = slots[:, None], times.clamp(max=state.tokens.shape[1] - 1)
        tokens = read.clamp(min=0)  # after the end of a draft, any that there is
        written = torch.where(is_done, state.tokens[places][..., 0], tokens)
        state.tokens.index_put_(places, written[..., None])
        logits = self._logits(tokens, places[1], state.done, state.ancestors, memory)  # (B, K, V)

        # A row for each token that is read, with what the search knows after it
        rows = slots.repeat_interleave(self.width)
        known = {name: getattr(state, name) for name in _KNOWN}
        known = pytree.tree_map(lambda tensor: tensor[rows], known)
        known |= {"time": times.flatten(), "last_tokens": tokens.flatten()[:, None]}
        after = state._replace(**known)
        drafts_after: Any = find_drafts(self.options.features, after.features)
        drafts_after.places.add_(steps.repeat(sizes[0]))
        # Each token adds to its own zero.
        running = [state.scores, *state.model_scores[:1]]
        for scores in (after.scores, *after.model_scores[:1]):
            scores.zero_()
        options = self._options(logits.flatten(0, 1)[:, None], after)
        chosen = self._choose_one(options, after)  # (B * K, 1)
        is_next = chosen.view_as(read)[:, :-1] == read[:, 1:]
        continues = ~is_done & is_next & (times[:, 1:] < state.limits[:, None])
        count = continues.cumprod(dim=1).sum(dim=1, keepdim=True)  # (B, 1)

        gains = [options.logits[:, 0].gather(1, chosen) + options.log_scale]
        if state.model_scores:
            gains.append(options.model_scores(torch.zeros_like(chosen), chosen))
        for total, gain in zip(running, gains, strict=True):
            later = total + gain.view_as(read).cumsum(dim=1)
            totals = torch.cat([total, later[:, :-1]], dim=1)  # (B, K)
            total.copy_(totals.gather(1, count))
        before = torch.where(is_done, state.log_probabilities[places][..., 0], totals)
        state.log_probabilities.index_put_(places, before[..., None])
        state.last_tokens.copy_(tokens.gather(1, count))
        state.time.add_(count[:, 0])
        drafts.places.add_(count[:, 0])
        last = slots * self.width + count[:, 0]
        options = pytree.tree_map(lambda tensor: tensor[last], options)
        log_scale, own_log_scale = (
            options.log_scale + running[0],
            options.own_log_scale + running[-1],
        )
        return options._replace(log_scale=log_scale, own_log_scale=own_log_scale), chosen[last]

    def _choose(
        self,
        options: "_Options",
        state: SearchState,
        ancestors: Tensor,
        tokens: Tensor | None = None,
    ) -> None:
        """Choose the next token of each hypothesis, unless the tokens are known."""
        for feature in self.options.features:
            feature.observe(options.logits, options.log_scale, state)
        # Of the running hypotheses, (B, N) each
        if self.beams > 1:
            parents, tokens = self._advance_beams(state, options, ancestors)
        else:
            if tokens is None:
                tokens = self._choose_one(options, state)
            parents = self._advance_one(state, options, tokens)
        for feature, feature_state in zip(self.options.features, state.features, strict=True):
            feature.follow(state, feature_state, parents, tokens)
        state.time.copy_(torch.where(state.done, state.time, state.time + 1))

    def extra_repr(self) -> str:
        width = f", width={self.width}" if self.width > 1 else ""
        return f"weights={self._weights}{width}"  # compiled steps depend on them

    def _logits(
        self,
        tokens: Tensor,
        time: Tensor,
        done: Tensor,
        ancestors: Tensor,
        memory: Sequence[SlotMemory],
    ) -> Tensor:
        """Return the logits of the model, or of an ensemble the logarithms of its probabilities,
        see [`StaticDecoder`].
        """
        inputs = tokens, time, done, ancestors
        logits = [
            decoder(*inputs, memory_of_model)
            for decoder, memory_of_model in zip(self.decoders, memory, strict=True)
        ]
        return logits[0] if len(logits) == 1 else log_mean_probabilities(logits, self._weights)

    def _options(self, logits: Tensor, state: SearchState) -> "_Options":
        """Return the tokens from which the search chooses, given the model's logits."""
        changed, log_norms = logits, log_sums(logits)  # (B, N, V), (B, N)
        if self.options.min_new_tokens:  # before features that force tokens, as in the library
            is_eos = _one_of(torch.arange(logits.shape[2], device=logits.device), self.eos)
            too_short = (state.time < self.options.min_new_tokens)[:, None, None]
            changed = torch.where(too_short & is_eos, -torch.inf, changed)
        for feature, feature_state in zip(self.options.features, state.features, strict=True):
            changed = feature.change_logits(changed, log_norms, state, feature_state)
        norms = log_sums(changed) if self.options.renormalizes else log_norms
        log_scale = state.scores - norms  # from logits to log-probabilities of hypotheses
        own_log_scale = state.model_scores.running - log_norms if state.model_scores else log_scale
        return _Options(changed, logits, log_scale, own_log_scale)

    def _advance_one(self, state: SearchState, options: "_Options", tokens: Tensor) -> Tensor:
        length = state.time + 1
        scores = options.logits[:, 0].gather(1, tokens) + options.log_scale
        ends = _one_of(tokens, self.eos) | (length >= state.limits)[:, None]
        # Only features read the parents.
        parents = torch.zeros_like(tokens) if self.options.features else tokens
        model_scores = options.model_scores(parents, tokens) if state.model_scores else scores
        unfinished = state.done[:, None] | ~ends
        _store(
            state,
            unfinished,
            finished_tokens=tokens,
            finished_lengths=length[:, None],
            finished_scores=scores / self.options.divisor(length[:, None]),
        )
        if state.model_scores:
            _store(state.model_scores, unfinished, finished=model_scores)
        state.done.logical_or_(ends[:, 0])
        _store(state, state.done[:, None], scores=scores, last_tokens=tokens)
        if state.model_scores:
            _store(state.model_scores, state.done[:, None], running=model_scores)
        return parents

    def _choose_one(self, options: "_Options", state: SearchState) -> Tensor:
        """Return the next tokens of hypotheses without others beside them, `(B, 1)`."""
        logits = options.logits[:, 0]
        if self.options.sampling is None:
            tokens = argmax(logits)[:, None]
        else:
            for logits_filter in self._filters:
                logits = logits_filter(None, logits)
            tokens = sample(logits, state.seeds, state.time)[:, None]
        for feature, feature_state in zip(self.options.features, state.features, strict=True):
            scores = options.logits, options.log_scale
            tokens = feature.prefer(tokens, *scores, state, feature_state)
        return tokens

    def _advance_beams(
        self, state: SearchState, options: "_Options", ancestors: Tensor
    ) -> tuple[Tensor, Tensor]:
        length, beams, candidates = state.time + 1, self.beams, self.options.candidates
        best = Candidates(*top_continuations(options.logits, options.log_scale, candidates))
        for feature, feature_state in zip(self.options.features, state.features, strict=True):
            best = feature.rank(best, options.logits, options.log_scale, state, feature_state)
        scores, parents, tokens = best
        ends = _one_of(tokens, self.eos) | (length >= state.limits)[:, None]
        model_scores = options.model_scores(parents, tokens) if state.model_scores else scores

        # Candidates that end, of the best N, replace worse finished hypotheses.
        order = torch.arange(candidates, device=ends.device)
        finishes = ends & (order < beams)
        if self.options.features:
            finishes = finishes & (scores > UNLIKELY / 2)  # the others have a forbidden token
        final = scores / self.options.divisor(length[:, None]) + ~finishes * UNLIKELY
        finished_scores, kept = torch.cat([state.finished_scores, final], dim=1).topk(beams)
        is_finished = torch.cat([state.is_finished, finishes], dim=1).gather(1, kept)
        lengths = torch.cat([state.finished_lengths, length[:, None].expand_as(ends)], dim=1)
        last_tokens = torch.cat([state.finished_tokens, tokens], dim=1)
        lines = torch.cat([order[:beams].expand_as(state.scores), parents + beams], dim=1).gather(
            1, kept
        )
        _store(
            state,
            state.done[:, None],
            finished_ancestors=pick(torch.cat([state.finished_ancestors, ancestors], dim=1), lines),
            finished_tokens=last_tokens.gather(1, kept),
            finished_lengths=lengths.gather(1, kept),
            finished_scores=finished_scores,
            is_finished=is_finished,
        )
        if state.model_scores:
            both = torch.cat([state.model_scores.finished, model_scores], dim=1).gather(1, kept)
            _store(state.model_scores, state.done[:, None], finished=both)

        # The others continue, unless the sentence is done.
        running, chosen = self._running(scores + ends * UNLIKELY, ends, beams)
        parents, tokens = parents.gather(1, chosen), tokens.gather(1, chosen)
        best_possible = self._best_possible(Candidates(running, parents, tokens), state)
        to_beat = torch.where(is_finished, finished_scores, UNLIKELY)
        # Nothing better can come, so that only the hypotheses that are returned count.
        if self._is_bounded:
            to_beat = to_beat.gather(1, (state.counts - 1)[:, None])
        now_done = ~(best_possible > to_beat.amin(dim=1, keepdim=True)).any(dim=1) | ends.all(dim=1)
        if self.options.early_stopping is True:
            now_done = now_done | is_finished.all(dim=1)
        state.done.logical_or_(now_done)
        _store(
            state,
            state.done[:, None],
            ancestors=pick(ancestors, parents),
            scores=running,
            last_tokens=tokens,
        )
        if state.model_scores:
            _store(state.model_scores, state.done[:, None], running=model_scores.gather(1, chosen))
        return parents, tokens

    def _running(self, scores: Tensor, ends: Tensor, beams: int) -> tuple[Tensor, Tensor]:
        """Return the scores and the places of the candidates that continue, in order."""
        if not self._ranks:
            return scores.topk(beams)
        order = torch.arange(scores.shape[1], device=scores.device)
        chosen = (-(order + ends * len(order))).topk(beams)[1]
        return scores.gather(1, chosen), chosen

    def _best_possible(self, running: Candidates, state: SearchState) -> Tensor:
        """Return the best final score of the running hypotheses if they ended now, `(B, 1)`.

        With `early_stopping="never"`, return a bound of the final scores that they can reach,
        unless a feature says otherwise.
        """
        lengths = state.time + 1
        features = list(zip(self.options.features, state.features, strict=True))
        if self.options.early_stopping == "never" and self.options.length_penalty > 0.0:
            ending = []
            for feature, feature_state in features:
                ends_now = feature.ends_now(feature_state)
                if ends_now is not None:
                    ending.append(ends_now)
            if ending:
                lengths = torch.where(torch.stack(ending).any(dim=0), lengths, state.limits)
            else:
                lengths = state.limits
        divisor = self.options.divisor(lengths[:, None])
        if not features:
            return running.scores[:, :1] / divisor
        final = running.scores / divisor
        for feature, feature_memory in features:
            may_end = feature.may_end(feature_memory, running)
            if may_end is not None:  # the others still count as hypotheses that run
                final = torch.where(may_end, final, final.clamp(max=UNLIKELY / 2))
        return final.amax(dim=1, keepdim=True)


def _store(state: SearchState | ModelScores, unless: Tensor, **values: Tensor) -> None:
    """Update the named tensors of a state in place, except in slots where `unless`, `(B, 1)`, is
    True.
    """
    for name, value in values.items():
        old = getattr(state, name)
        old.copy_(torch.where(unless if old.dim() == 2 else unless[:, None], old, value))


def _one_of(tokens: Tensor, choices: Tensor) -> Tensor:
    return (tokens[..., None] == choices).any(dim=-1)
