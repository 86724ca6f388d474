"""
Searches as a textbook writes them: whole sequences, and the model called on each of them at every
step.

They define what the engine computes: greedy and beam search, the same over the mean probabilities of
several models, and beam search with lexical constraints. They are slow, and have no caches, slots or
static shapes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from tests.generation_models import penalty
from vanilla_transformer.decoding.engine.phrase_constraints import WholeWords
from vanilla_transformer.generation_vanilla_transformer import closest_margin, length_penalty

Change = Callable[[torch.Tensor, list[int]], torch.Tensor]


class Running(NamedTuple):
    """A hypothesis: its tokens, the score by which the search compares it, and the model's
    log-probability.
    """

    tokens: list[int]
    score: float
    log_probability: float


@dataclass
class Textbook:
    """
    Search for the translations of one source.

    Args:
        options: Options of the engine: a generation config's.
        change: Maps the model's log-probabilities of the next token `(V,)`, given the tokens of a
            hypothesis, to those by which the search chooses.
    """

    model: Any
    source: Sequence[int]
    options: dict[str, Any]
    change: Change = lambda scores, _: scores

    def option(self, name: str, default: Any = None) -> Any:
        found = self.options.get(name)
        found = getattr(self.model.generation_config, name, None) if found is None else found
        return default if found is None else found

    @property
    def eos(self) -> list[int]:
        eos = self.option("eos_token_id")
        return eos if isinstance(eos, list) else [eos]

    @property
    def limit(self) -> int:
        """The tokens that a hypothesis may have."""
        seen = [token for token in self.source if self.model.config.source_eos or token != 2]
        margin = closest_margin([self.options, vars(self.model.generation_config)])
        new, longest = self.option("max_new_tokens"), self.option("max_length")
        limit = (
            len(seen) + margin if margin is not None else new if new is not None else longest - 1
        )
        if self.model.config.position_embedding_type == "learned":
            limit = min(limit, self.model.config.max_position_embeddings - 1)
        return max(1, limit)

    def log_probabilities(self, targets: Sequence[list[int]]) -> torch.Tensor:
        """Return the model's log-probabilities of the token after targets of one length,
        `(targets, V)`.
        """
        ids, start = (
            torch.tensor([[*self.source]] * len(targets)),
            self.option("decoder_start_token_id"),
        )
        with torch.no_grad():
            logits = self.model(
                input_ids=ids, decoder_input_ids=torch.tensor([[start, *each] for each in targets])
            ).logits
        return logits[:, -1].log_softmax(dim=-1)

    def continuations(self, running: Sequence[Running]) -> list[Running]:
        """Return the possible continuations of hypotheses by one token, best first."""
        found = []
        for each, own in zip(
            running, self.log_probabilities([each.tokens for each in running]), strict=True
        ):
            changed = self.change(own.clone(), each.tokens)
            if len(each.tokens) < self.option("min_new_tokens", 0):
                changed[self.eos] = -torch.inf
            for token, (score, log_probability) in enumerate(
                zip(changed.tolist(), own.tolist(), strict=True)
            ):
                if score > -torch.inf:
                    total = each.log_probability + log_probability
                    found.append(Running([*each.tokens, token], each.score + score, total))
        return sorted(found, key=lambda each: each.score, reverse=True)

    def final(self, hypothesis: Running) -> Running:
        """Return a hypothesis that ends with its final score."""
        return hypothesis._replace(score=hypothesis.score / self.divisor(len(hypothesis.tokens)))

    def divisor(self, length: int) -> float:
        return length_penalty(
            length, self.option("length_penalty", 1.0), self.option("length_penalty_type", "power")
        )

    def ends(self, hypothesis: Running) -> bool:
        return hypothesis.tokens[-1] in self.eos or len(hypothesis.tokens) >= self.limit

    def search(self, beams: int) -> list[Running]:
        """Return the finished hypotheses, best first."""
        running, finished = [Running([], 0.0, 0.0)], list[Running]()
        while running:
            running, finished = self.step(running, finished, beams)
            if not running or self.is_done(running, finished, beams):
                break
        return finished

    def step(
        self, running: list[Running], finished: list[Running], beams: int
    ) -> tuple[list[Running], list[Running]]:
        """Return the running and the finished hypotheses after one more token."""
        candidates = self.continuations(running)
        ended = [self.final(each) for each in candidates[:beams] if self.ends(each)]
        finished = sorted([*finished, *ended], key=lambda each: each.score, reverse=True)[:beams]
        return [each for each in candidates if not self.ends(each)][:beams], finished

    def is_done(self, running: list[Running], finished: list[Running], beams: int) -> bool:
        """Tell whether the search stops: no running hypothesis would beat the worst finished one if
        it ended now.
        """
        if len(finished) < beams:
            return False
        rule = self.option("early_stopping", False)
        if rule == "never" and self.option("length_penalty", 1.0) > 0.0:  # or at the limit
            best = running[0].score / self.divisor(self.limit)
        else:
            best = max(self.final(each).score for each in running)
        return rule is True or best <= min(each.score for each in finished)


def force(prefix: Sequence[int]) -> Change:
    """Return a `change` that forbids all tokens but the next one of a prefix."""

    def change(scores: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        if len(tokens) < len(prefix):
            others = torch.arange(len(scores)) != prefix[len(tokens)]
            scores[others] = -torch.inf
        return scores

    return change


def forbid_repeats(size: int, start: int, change: Change) -> Change:
    """Return a `change` that also forbids tokens that complete an n-gram twice, unless it leaves
    only one token.
    """

    def changed(scores: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        scores, history = change(scores, tokens), [start, *tokens]
        if scores.isfinite().sum() > 1:
            ngrams = [
                tuple(history[place : place + size]) for place in range(len(history) - size + 1)
            ]
            latest = tuple(history[len(history) - size + 1 :])
            scores[[ngram[-1] for ngram in ngrams if ngram[:-1] == latest]] = -torch.inf
        return scores

    return changed


def assert_same_hypotheses(found: Sequence[Any], expected: Sequence[Running]) -> None:
    """Compare hypotheses of the engine, best first.

    Those with equal scores but for rounding may come in any order.
    """
    expected = expected[: len(found)]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert abs(ours.score - theirs.score) < 1e-4 * max(1.0, abs(theirs.score)), (ours, theirs)
        if ours.tokens == theirs.tokens:
            assert abs(ours.log_probability - theirs.log_probability) < 1e-4 * max(
                1.0, abs(theirs.log_probability)
            )
            assert abs(sum(ours.token_log_probabilities) - ours.log_probability) < 1e-3
        else:
            assert abs(ours.score - theirs.score) < 1e-5 * max(1.0, abs(theirs.score)), (
                ours,
                theirs,
            )


@torch.no_grad()
def mean_log_probabilities(models, weights, source, tokens, start):
    """Return the logarithm of the weighted mean of the models' probabilities of the next token, in
    float64.
    """
    total = sum(weights)
    mean = 0.0
    for model, weight in zip(models, weights, strict=True):
        ids, previous = torch.tensor([source]), torch.tensor([[start, *tokens]])
        logits = model(input_ids=ids, decoder_input_ids=previous, use_cache=False).logits[0, -1]
        mean = mean + weight / total * logits.double().softmax(-1)
    return mean.log().tolist()


def greedy_search(models, weights, source, start, eos, limit, alpha=0.6, penalty_type="wu"):
    """Return the score and the tokens of the most likely token at each step."""
    tokens, score = [], 0.0
    while len(tokens) < limit and tokens[-1:] != [eos]:
        row = mean_log_probabilities(models, weights, source, tokens, start)
        tokens.append(max(range(len(row)), key=row.__getitem__))
        score += row[tokens[-1]]
    return [(score / penalty(penalty_type, alpha, len(tokens)), tokens)]


def beam_search(
    models,
    weights,
    source,
    start,
    eos,
    limit,
    beams,
    alpha=0.6,
    penalty_type="wu",
    early_stopping=False,
):
    """Return the score and the tokens of the best finished hypotheses, best first."""
    running, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        candidates = []
        for score, tokens in running:
            row = mean_log_probabilities(models, weights, source, tokens, start)
            candidates += [(score + row[token], [*tokens, token]) for token in range(len(row))]
        best = sorted(candidates, reverse=True)[: 2 * beams]
        divisor = penalty(penalty_type, alpha, length)
        ended = [
            (score / divisor, tokens)
            for score, tokens in best[:beams]
            if tokens[-1] == eos or length == limit
        ]
        finished = sorted(finished + ended, reverse=True)[:beams]
        running = [(score, tokens) for score, tokens in best if tokens[-1] != eos][:beams]
        worst = finished[-1][0] if len(finished) == beams else -math.inf
        if len(finished) == beams and (early_stopping or running[0][0] / divisor <= worst):
            break
    return finished


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
