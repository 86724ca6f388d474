"""
Lexical constraints of beam search: phrases that every finished hypothesis contains.

Beams are divided as in dynamic beam allocation (Post and Vilar, 2018), in its vectorized form (Hu
et al., 2019). Candidates form banks by the number of tokens that they still need to contain all
phrases. The best candidate of each bank comes first, then the second best of each, and so on;
within such a round, the bank that needs the fewest tokens comes first. Without phrases there is one
bank, and the order is that of plain beam search.

Phrases are found by the shift-and algorithm (Baeza-Yates and Gonnet, 1992), so that those that
begin alike or overlap need no care.

The last word of a phrase is complete if it is one of [`WholeWords`]: after the token that completes
the phrase, the search forbids tokens that continue a word.

Letters in shapes: B slots, N beams, C candidates, M room for the tokens of a slot's phrases, V
vocabulary.
"""

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.machine.transfers import to_device

from .requests import Phrases
from .search_options import SearchFeature
from .search_state import Hypothesis, SearchState
from .top_k import UNLIKELY, Candidates, argmax, pick


class ConstraintError(OptionError):
    """Raised for constraints that no translation meets."""


class WholeWords(tuple[int, ...]):
    """The tokens of a phrase whose last word may have no further letters."""


class WordContinuations(frozenset[int]):
    """The tokens of a vocabulary that add letters to the word before them."""

    @cached_property
    def identity(self) -> str:
        """A hash of the tokens."""
        return hashlib.sha256(repr(sorted(self)).encode()).hexdigest()[:32]

    def __repr__(self) -> str:
        return f"WordContinuations({self.identity})"  # short, in the identity of a compiled step


NO_CONTINUATIONS = WordContinuations()


class Progress(NamedTuple):
    """
    What hypotheses contain of their phrases, for each token of the phrases: `(B, N, M)` or
    `(B, C, M)`.

    Attributes:
        matched: The hypothesis ends in its phrase up to this token.
        met: The hypothesis contains its phrase.
    """

    matched: Tensor
    met: Tensor


class PhraseTokens(NamedTuple):
    """
    The tokens of all phrases of a slot, one phrase after the other, `(B, M)` each.

    Attributes:
        tokens: Token ids, and -1 after the last one.
        offsets: The place of each token in its phrase.
        ends: The place of the last token of its phrase in this list.
        earlier: The place of the last token of the same phrase given before, which must be met
            first; or -1.
        closes: 1 for the last tokens of [`WholeWords`], otherwise 0.
    """

    tokens: Tensor
    offsets: Tensor
    ends: Tensor
    earlier: Tensor
    closes: Tensor

    def begin(self, beams: int) -> Progress:
        """Return the progress of hypotheses without a token."""
        padding = (self.tokens < 0)[:, None].expand(-1, beams, -1)
        return Progress(torch.zeros_like(padding), padding.clone())

    def next_tokens(self, progress: Progress) -> Tensor:
        """Tell which tokens continue or begin a phrase that is not met: `(B, N, M)`."""
        matched, met = progress
        earlier = self.earlier[:, None].expand_as(met)
        begins = (self.offsets == 0)[:, None] & (
            (earlier < 0) | met.gather(2, earlier.clamp(min=0))
        )
        continues = (self.offsets > 0)[:, None] & matched.roll(1, dims=2)
        return (begins | continues) & ~met

    def advance(self, progress: Progress, parents: Tensor, tokens: Tensor) -> Progress:
        """Return the progress of candidates, given the beams that they continue and their tokens
        `(B, C)`.
        """
        matched = pick(self.next_tokens(progress), parents) & (
            tokens[..., None] == self.tokens[:, None]
        )
        met = pick(progress.met, parents) | matched.gather(2, self.ends[:, None].expand_as(matched))
        return Progress(matched, met)

    def missing(self, progress: Progress) -> Tensor:
        """Return how many tokens complete all phrases: the phrase in progress, then the other ones:
        `(B, N)`.
        """
        matched, met = progress
        written = (self.offsets[:, None] + 1) * (matched & ~met)
        return (~met).sum(dim=2) - written.amax(dim=2)

    def allocate(self, candidates: Candidates, progress: Progress, room: Tensor) -> Candidates:
        """Put candidates in the order in which they get beams.

        Args:
            candidates: Some may be there more than once.
            progress: Progress of the beams.
            room: Tokens that may follow, `(B,)`. A candidate that needs more is impossible.
        """
        order = candidates.scores.argsort(dim=1, descending=True, stable=True)
        scores, parents, tokens = (values.gather(1, order) for values in candidates)
        missing = self.missing(self.advance(progress, parents, tokens))
        is_first = _earlier_equals(tokens * progress.met.shape[1] + parents) == 0
        possible = (scores > UNLIKELY / 2) & (missing <= room[:, None]) & is_first
        rounds = _earlier_equals(torch.where(possible, missing, -1))
        banks = self.tokens.shape[1] + 1
        order = torch.where(possible, rounds * banks + missing, len(scores[0]) * banks).argsort(
            dim=1, stable=True
        )
        scores = torch.where(possible, scores, UNLIKELY)
        return Candidates(*(values.gather(1, order) for values in (scores, parents, tokens)))


def phrase_rows(phrases: Phrases, room: int) -> list[list[int]]:
    """Return the row of each tensor of [`PhraseTokens`] for the phrases of a sentence."""
    columns = list[tuple[int, ...]]()
    ends = dict[tuple[int, ...], int]()
    for phrase in phrases:
        key, last = tuple(phrase), len(phrase) - 1
        end, earlier = len(columns) + last, ends.get(key, -1)
        for index, token in enumerate(key):
            closes = isinstance(phrase, WholeWords) and index == last
            columns.append((token, index, end, earlier, int(closes)))
        ends[key] = end
    columns += [(-1, 0, index, -1, 0) for index in range(len(columns), room)]
    return [*map(list, zip(*columns, strict=True))]


def check_phrases(phrases: Phrases, room: int, limit: int, tokens: Container[int]) -> None:
    """Check that a translation can contain phrases.

    Args:
        room: Tokens of phrases that the search has room for.
        limit: Tokens that the translation may have.
        tokens: Those that a phrase may have.
    """
    if not all(phrases):
        raise ConstraintError("A constraint must have a token, got none.")
    for token in chain.from_iterable(phrases):
        if token not in tokens:
            requirement = "A constraint must have tokens of the vocabulary besides EOS"
            raise ConstraintError(f"{requirement}, got {token}.")
    length = sum(map(len, phrases))
    if length > limit:
        hint = "Raise the limit of the length, or give fewer or shorter constraints."
        requirement = f"A translation may have {limit} tokens"
        raise ConstraintError(f"{requirement}, but its constraints have {length}. {hint}")
    if length > room:
        requirement = f"Constraints need an engine with `constraint_tokens={length}` or more"
        raise ConstraintError(f"{requirement}, got {room}.")


def _earlier_equals(keys: Tensor) -> Tensor:
    """Return how many entries before it are equal to each entry of `(B, C)`."""
    ordered, order = keys.sort(dim=1, stable=True)
    places = torch.arange(keys.shape[1], device=keys.device).expand_as(keys)
    begins = ordered != ordered.roll(1, dims=1)
    earlier = places - (begins * places).cummax(dim=1)[0]
    return torch.empty_like(earlier).scatter(1, order, earlier)


class PhraseMemory(NamedTuple):
    """
    The phrases of each slot, and what its running hypotheses contain of them.

    Attributes:
        prefix_lengths: The number of tokens with which every hypothesis begins, whatever its
            phrases: `(B,)`.
    """

    phrases: PhraseTokens
    progress: Progress
    prefix_lengths: Tensor


@dataclass(frozen=True)
class PhraseConstraints(SearchFeature):
    """
    Require the phrases of [`DecodeRequest.phrases`].

    Attributes:
        room: Tokens that the phrases of a sentence may have.
        word_continuations: The tokens that must not follow [`WholeWords`].
        penalties: [`UNLIKELY`] for these tokens, otherwise 0, `(V,)`, if there are any.
    """

    room: int
    num_beams: int
    eos_token_ids: tuple[int, ...]
    word_continuations: WordContinuations = NO_CONTINUATIONS
    penalties: Any = field(default=None, repr=False, compare=False)
    ranks_candidates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_beams == 1:
            raise ConstraintError(
                "Constraints need beam search: `num_beams` must be 2 or more, got 1."
            )

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> PhraseMemory:
        rows = phrase_rows([], self.room)
        phrases = PhraseTokens(*(torch.tensor(row, device=device).repeat(slots, 1) for row in rows))
        return PhraseMemory(
            phrases, phrases.begin(beams), torch.zeros(slots, dtype=torch.long, device=device)
        )

    def enter(self, memory: PhraseMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        rows = zip(*(phrase_rows(request.phrases, self.room) for request in requests), strict=True)
        for tensor, values in zip(memory.phrases, rows, strict=True):
            tensor[slots] = to_device(values, tensor.device)
        for tensor, first in zip(
            memory.progress, memory.phrases.begin(self.num_beams), strict=True
        ):
            tensor[slots] = first[slots]
        lengths = [len(request.prefix) for request in requests]
        memory.prefix_lengths[slots] = to_device(lengths, memory.prefix_lengths.device)

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: SearchState, memory: PhraseMemory
    ) -> Tensor:
        is_incomplete = memory.phrases.missing(memory.progress) > 0
        for eos in (
            self.eos_token_ids
        ):  # in place, since hypotheses with a forbidden EOS are never returned
            logits[:, :, eos].masked_fill_(is_incomplete, -torch.inf)
        if self.word_continuations:
            # Hypotheses that have just completed whole words, (B, N)
            has_closed = (memory.progress.matched & memory.phrases.closes[:, None].bool()).any(
                dim=2
            )
            has_closed = has_closed & (state.time >= memory.prefix_lengths)[:, None]
            logits.addcmul_(
                has_closed[:, :, None].to(logits.dtype), self.penalties.to(logits.dtype)
            )
        return logits

    def rank(
        self,
        best: Candidates,
        logits: Tensor,
        log_scale: Tensor,
        state: SearchState,
        memory: PhraseMemory,
    ) -> Candidates:
        (slots, beams, _), phrases, progress = logits.shape, memory.phrases, memory.progress
        # The best token of each beam, and the tokens that continue a phrase, are candidates, too.
        likely = argmax(logits.flatten(0, 1)).view(slots, beams, 1)
        continuing = phrases.tokens.clamp(min=0)[:, None].expand(-1, beams, -1)
        tokens = torch.cat([likely, continuing], dim=2)  # (B, N, 1 + M)
        is_candidate = torch.cat(
            [torch.ones_like(likely, dtype=torch.bool), phrases.next_tokens(progress)], dim=2
        )
        scores = torch.where(
            is_candidate, logits.gather(2, tokens) + log_scale[..., None], UNLIKELY
        )
        parents = torch.arange(beams, device=tokens.device)[:, None].expand_as(tokens)
        added = scores.flatten(1), parents.flatten(1), tokens.flatten(1)
        every = Candidates(*(torch.cat(both, dim=1) for both in zip(best, added, strict=True)))
        ordered = phrases.allocate(every, progress, state.limits - state.time - 1)
        return Candidates(*(values[:, : best.scores.shape[1]] for values in ordered))

    def may_end(self, memory: PhraseMemory, running: Candidates) -> Tensor:
        advanced = memory.phrases.advance(memory.progress, running.parents, running.tokens)
        return memory.phrases.missing(advanced) == 0

    def ends_now(self, memory: PhraseMemory) -> Tensor:
        return (memory.phrases.tokens >= 0).any(dim=1)

    def follow(
        self, state: SearchState, memory: PhraseMemory, parents: Tensor, tokens: Tensor
    ) -> None:
        advanced = memory.phrases.advance(memory.progress, parents, tokens)
        for old, new in zip(memory.progress, advanced, strict=True):
            old.copy_(torch.where(state.done[:, None, None], old, new))


def check_complete(hypotheses: Sequence[Hypothesis]) -> None:
    """Check that all hypotheses of a sentence contain its phrases."""
    complete = sum(hypothesis.score > UNLIKELY / 2 for hypothesis in hypotheses)
    if complete < len(hypotheses):
        hint = "Raise the limit of the length, or lower `num_return_sequences`."
        raise ConstraintError(
            f"Only {complete} of {len(hypotheses)} translations can contain the constraints. {hint}"
        )
