"""
A literal definition of beam search with lexical constraints, for one sentence, in plain Python.

It is dynamic beam allocation (Post and Vilar, 2018) with the rounds over banks of Hu et al. (2019),
and the rules of the library for finished hypotheses. A list is searched where the engine updates
tensors.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from vanilla_transformer.decoding.engine.phrase_constraints import WholeWords
from vanilla_transformer.generation_vanilla_transformer import length_penalty


def occurrences(tokens: list[int], phrase: tuple[int, ...]) -> tuple[int, int]:
    """Return how often a phrase is in a text without overlaps, from the left, and where the last
    one ends.
    """
    count = end = start = 0
    while start <= len(tokens) - len(phrase):
        if tuple(tokens[start : start + len(phrase)]) == phrase:
            count, end = count + 1, start + len(phrase)
            start = end
        else:
            start += 1
    return count, end


def count_missing(tokens: list[int], phrases: list[tuple[int, ...]]) -> int:
    """Return how many tokens complete all phrases: first the one that the text ends in the most
    of.
    """
    missing, most = 0, 0
    for phrase in dict.fromkeys(phrases):
        count, end = occurrences(tokens, phrase)
        absent = phrases.count(phrase) - count
        if absent > 0:
            missing += absent * len(phrase)
            rest = tuple(tokens[end:])
            begun = [
                size
                for size in range(1, min(len(phrase), len(rest) + 1))
                if rest[-size:] == phrase[:size]
            ]
            most = max([most, *begun])
    return missing - most


def has_closed(tokens: list[int], phrases: list[tuple[int, ...]]) -> bool:
    """Tell whether the last token completes a phrase whose last word may have no further
    letters.
    """
    for phrase in {each for each in phrases if isinstance(each, WholeWords)}:
        before, now = (occurrences(each, phrase)[0] for each in (tokens[:-1], tokens))
        if before < now <= phrases.count(phrase):
            return True
    return False


def next_tokens(tokens: list[int], phrases: list[tuple[int, ...]]) -> set[int]:
    """Return the tokens that begin or continue a phrase that the text still needs."""
    found = set()
    for phrase in phrases:
        count, end = occurrences(tokens, phrase)
        if count < phrases.count(phrase):
            rest = tuple(tokens[end:])
            found |= {
                phrase[size]
                for size in range(len(phrase))
                if size == 0 or rest[-size:] == phrase[:size]
            }
    return found


@dataclass
class ConstrainedBeamSearch:
    """
    Search for translations that contain all phrases.

    Args:
        model: A model with an encoder.
        source: Its token ids.
        phrases: Token ids of each.
        word_continuations: Tokens that must not follow [`WholeWords`].
        limit: Tokens that a hypothesis may have.
    """

    model: Any
    source: list[int]
    phrases: list[tuple[int, ...]]
    beams: int
    limit: int
    start: int
    eos: tuple[int, ...]
    penalty: float = 1.0
    penalty_type: str = "power"
    early_stopping: bool | str = False
    min_new_tokens: int = 0
    word_continuations: frozenset[int] = frozenset()
    finished: list[tuple[float, list[int]]] = field(default_factory=list)

    def __call__(self) -> list[tuple[float, list[int]]]:
        """Return the scores and the tokens of the best hypotheses, best first."""
        running = [(0.0, list[int]())]
        for length in range(1, self.limit + 1):
            ordered = self._allocate(self._candidates(running), length)
            ordered = ordered[: max(2, 1 + len(self.eos)) * self.beams]
            ends = [tokens[-1] in self.eos or length == self.limit for _, tokens in ordered]
            of_best = zip(ordered[: self.beams], ends, strict=False)
            done = [
                (score / self._penalty(length), tokens) for (score, tokens), end in of_best if end
            ]
            self.finished = sorted([*self.finished, *done], key=lambda each: -each[0])[: self.beams]
            running = [each for each, end in zip(ordered, ends, strict=True) if not end][
                : self.beams
            ]
            if not running or self._is_done(running, length):
                break
        return self.finished

    def _is_done(self, running: list[tuple[float, list[int]]], length: int) -> bool:
        """Tell whether no running hypothesis that may end would beat the worst finished one if it
        ended now.
        """
        if len(self.finished) < self.beams:
            return False
        farthest = self.early_stopping == "never" and self.penalty > 0 and not self.phrases
        complete = [score for score, tokens in running if count_missing(tokens, self.phrases) == 0]
        possible = max(complete, default=-torch.inf) / self._penalty(
            self.limit if farthest else length
        )
        return self.early_stopping is True or possible <= self.finished[-1][0]

    def _candidates(self, running: list[tuple[float, list[int]]]) -> list[tuple[float, list[int]]]:
        every, best = list[tuple[float, list[int]]](), list[tuple[float, list[int]]]()
        wanted = []
        for score, tokens in running:
            values = self._log_probabilities(tokens)
            if len(tokens) < self.min_new_tokens or count_missing(tokens, self.phrases) > 0:
                values[list(self.eos)] = -torch.inf
            if has_closed(tokens, self.phrases):
                values[list(self.word_continuations)] = -torch.inf
            own = [(score + value, [*tokens, token]) for token, value in enumerate(values.tolist())]
            every += own
            best.append(max(own, key=lambda each: each[0]))
            wanted += [own[token] for token in next_tokens(tokens, self.phrases)]
        every.sort(key=lambda each: -each[0])
        found = every[: max(2, 1 + len(self.eos)) * self.beams] + best + wanted
        different = {tuple(tokens): score for score, tokens in found if score > -torch.inf}
        return [(score, list(tokens)) for tokens, score in different.items()]

    def _allocate(
        self, candidates: list[tuple[float, list[int]]], length: int
    ) -> list[tuple[float, list[int]]]:
        banks = dict[int, list[tuple[float, list[int]]]]()
        for score, tokens in sorted(candidates, key=lambda each: -each[0]):
            missing = count_missing(tokens, self.phrases)
            if missing <= self.limit - length:
                banks.setdefault(missing, []).append((score, tokens))
        rounds = max(map(len, banks.values()), default=0)
        return [
            bank[turn]
            for turn in range(rounds)
            for _, bank in sorted(banks.items())
            if turn < len(bank)
        ]

    def _penalty(self, length: int) -> float:
        return float(length_penalty(torch.tensor([length]), self.penalty, self.penalty_type))

    @torch.no_grad()
    def _log_probabilities(self, tokens: list[int]) -> torch.Tensor:
        inputs, written = torch.tensor([self.source]), torch.tensor([[self.start, *tokens]])
        return (
            self.model(input_ids=inputs, decoder_input_ids=written)
            .logits[0, -1]
            .float()
            .log_softmax(-1)
        )


__all__ = ["ConstrainedBeamSearch", "count_missing", "has_closed", "next_tokens", "occurrences"]
