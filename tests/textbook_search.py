"""
Searches as a textbook writes them: whole sequences, and the model called on each of them at every
step.

They define what the engine computes: greedy and beam search, the same over the mean probabilities of
several models, and beam search with lexical constraints. They are slow, and have no caches, slots or
static shapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter, itemgetter
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


SCORE = attrgetter("score")


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

    def option(self, name: str, default: object = None) -> Any:
        for options in (self.options, vars(self.model.generation_config)):
            if options.get(name) is not None:
                return options[name]
        return default

    @property
    def eos(self) -> list[int]:
        eos = self.option("eos_token_id")
        return eos if isinstance(eos, list) else [eos]

    @property
    def limit(self) -> int:
        """The tokens that a hypothesis may have."""
        config = self.model.config
        margin = closest_margin([self.options, vars(self.model.generation_config)])
        if margin is not None:
            ends = 0 if config.source_eos else self.source.count(2)
            limit = len(self.source) - ends + margin
        else:
            limit = self.option("max_new_tokens")
            if limit is None:
                limit = self.option("max_length") - 1
        if config.position_embedding_type == "learned":
            limit = min(limit, config.max_position_embeddings - 1)
        return max(1, limit)

    def log_probabilities(self, targets: Sequence[list[int]]) -> torch.Tensor:
        """Return the model's log-probabilities of the token after targets of one length,
        `(targets, V)`.
        """
        start = self.option("decoder_start_token_id")
        ids = torch.tensor([[*self.source]] * len(targets))
        written = torch.tensor([[start, *target] for target in targets])
        with torch.no_grad():
            logits = self.model(input_ids=ids, decoder_input_ids=written).logits
        return logits[:, -1].log_softmax(dim=-1)

    def continuations(self, running: Sequence[Running]) -> list[Running]:
        """Return the possible continuations of hypotheses by one token, best first."""
        continuations = []
        rows = self.log_probabilities([hypothesis.tokens for hypothesis in running])
        for hypothesis, row in zip(running, rows, strict=True):
            tokens, before, log_probability = hypothesis
            changed = self.change(row.clone(), tokens)
            if len(tokens) < self.option("min_new_tokens", 0):
                changed[self.eos] = -torch.inf
            for token in changed.isfinite().nonzero().flatten().tolist():
                score = before + changed[token].item()
                total = log_probability + row[token].item()
                continuations.append(Running([*tokens, token], score, total))
        return sorted(continuations, key=SCORE, reverse=True)

    def final(self, hypothesis: Running) -> Running:
        """Return a hypothesis that ends with its final score."""
        divisor = self.divisor(len(hypothesis.tokens))
        return hypothesis._replace(score=hypothesis.score / divisor)

    def divisor(self, length: int) -> float:
        alpha = self.option("length_penalty", 1.0)
        return length_penalty(length, alpha, self.option("length_penalty_type", "power"))

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
        ended = map(self.final, filter(self.ends, candidates[:beams]))
        finished = sorted([*finished, *ended], key=SCORE, reverse=True)
        running = [candidate for candidate in candidates if not self.ends(candidate)]
        return running[:beams], finished[:beams]

    def is_done(self, running: list[Running], finished: list[Running], beams: int) -> bool:
        """Tell whether the search stops: no running hypothesis would beat the worst finished one if
        it ended now. Greedy search stops at its first end.
        """
        if len(finished) < beams or beams == 1:
            return len(finished) == beams
        early_stopping = self.option("early_stopping", False)
        if early_stopping == "never" and self.option("length_penalty", 1.0) > 0.0:
            best = running[0].score / self.divisor(self.limit)  # or at the limit
        else:
            best = max(map(SCORE, map(self.final, running)))
        return early_stopping is True or best <= min(map(SCORE, finished))


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
            latest = history[len(history) - size + 1 :]
            for last in range(size - 1, len(history)):
                if history[last - size + 1 : last] == latest:
                    scores[history[last]] = -torch.inf
        return scores

    return changed


def assert_same_hypotheses(hypotheses: Sequence[Any], expected: Sequence[Running]) -> None:
    """Compare hypotheses of the engine, best first.

    Those with equal scores but for rounding may come in any order.
    """
    expected = expected[: len(hypotheses)]
    assert len(hypotheses) == len(expected)
    for ours, theirs in zip(hypotheses, expected, strict=True):
        if ours.tokens == theirs.tokens:
            assert _distance(ours.score, theirs.score) < 1e-4, (ours, theirs)
            assert _distance(ours.log_probability, theirs.log_probability) < 1e-4
            total = sum(ours.token_log_probabilities)
            assert abs(total - ours.log_probability) < 1e-3
        else:
            assert _distance(ours.score, theirs.score) < 1e-5, (ours, theirs)


def _distance(value: float, expected: float) -> float:
    """Return the difference of two numbers, as a share of the second where it is above 1."""
    return abs(value - expected) / max(1.0, abs(expected))


@torch.no_grad()
def mean_log_probabilities(models, weights, source, tokens, start):
    """Return the logarithm of the weighted mean of the models' probabilities of the next token, in
    float64.
    """
    total = sum(weights)
    mean = 0.0
    for model, weight in zip(models, weights, strict=True):
        inputs = {"input_ids": torch.tensor([source]), "use_cache": False}
        inputs["decoder_input_ids"] = torch.tensor([[start, *tokens]])
        probabilities = model(**inputs).logits[0, -1].double().softmax(-1)
        mean = mean + weight / total * probabilities
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
            for token, value in enumerate(row):
                candidates.append((score + value, [*tokens, token]))
        best = sorted(candidates, reverse=True)[: 2 * beams]
        divisor = penalty(penalty_type, alpha, length)
        for score, tokens in best[:beams]:
            if tokens[-1] == eos or length == limit:
                finished.append((score / divisor, tokens))
        finished = sorted(finished, reverse=True)[:beams]
        running = [candidate for candidate in best if candidate[1][-1] != eos][:beams]
        is_full = len(finished) == beams
        if is_full and (early_stopping or running[0][0] / divisor <= finished[-1][0]):
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
            most = max(most, *begun_sizes(tokens[end:], phrase))
    return missing - most


def begun_sizes(rest: list[int], phrase: tuple[int, ...]) -> list[int]:
    """Return how many tokens of a phrase a text may end in: 0, and any others."""
    sizes = [0]
    for size in range(1, min(len(phrase), len(rest) + 1)):
        if tuple(rest[-size:]) == phrase[:size]:
            sizes.append(size)
    return sizes


def has_closed(tokens: list[int], phrases: list[tuple[int, ...]]) -> bool:
    """Tell whether the last token completes a phrase whose last word may have no further
    letters.
    """
    for phrase in phrases:
        before, _ = occurrences(tokens[:-1], phrase)
        now, _ = occurrences(tokens, phrase)
        if isinstance(phrase, WholeWords) and before < now <= phrases.count(phrase):
            return True
    return False


def next_tokens(tokens: list[int], phrases: list[tuple[int, ...]]) -> set[int]:
    """Return the tokens that begin or continue a phrase that the text still needs."""
    needed = set()
    for phrase in phrases:
        count, end = occurrences(tokens, phrase)
        if count < phrases.count(phrase):
            needed |= {phrase[size] for size in begun_sizes(tokens[end:], phrase)}
    return needed


Scored = tuple[float, list[int]]  # of a hypothesis: its score, and its tokens


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
    finished: list[Scored] = field(default_factory=list)

    def __call__(self) -> list[Scored]:
        """Return the scores and the tokens of the best hypotheses, best first."""
        running = [(0.0, list[int]())]
        for length in range(1, self.limit + 1):
            ordered = self._allocate(self._candidates(running), length)
            running = []
            for rank, (score, tokens) in enumerate(ordered[: self._most_candidates]):
                if tokens[-1] not in self.eos and length < self.limit:
                    running.append((score, tokens))
                elif rank < self.beams:
                    self.finished.append((score / self._penalty(length), tokens))
            running = running[: self.beams]
            self.finished = best_first(self.finished)[: self.beams]
            if not running or self._is_done(running, length):
                break
        return self.finished

    @property
    def _most_candidates(self) -> int:
        return max(2, 1 + len(self.eos)) * self.beams

    def _is_done(self, running: list[Scored], length: int) -> bool:
        """Tell whether no running hypothesis that may end would beat the worst finished one if it
        ended now.
        """
        if len(self.finished) < self.beams:
            return False
        if self.early_stopping == "never" and self.penalty > 0 and not self.phrases:
            length = self.limit
        best = -torch.inf
        for score, tokens in running:
            if count_missing(tokens, self.phrases) == 0:
                best = max(best, score)
        possible = best / self._penalty(length)
        return self.early_stopping is True or possible <= self.finished[-1][0]

    def _candidates(self, running: list[Scored]) -> list[Scored]:
        every, best = list[Scored](), list[Scored]()
        wanted = []
        for score, tokens in running:
            values = self._log_probabilities(tokens)
            if len(tokens) < self.min_new_tokens or count_missing(tokens, self.phrases) > 0:
                values[list(self.eos)] = -torch.inf
            if has_closed(tokens, self.phrases):
                values[list(self.word_continuations)] = -torch.inf
            continuations = list[Scored]()
            for token, value in enumerate(values.tolist()):
                continuations.append((score + value, [*tokens, token]))
            every += continuations
            best.append(max(continuations, key=itemgetter(0)))
            needed = next_tokens(tokens, self.phrases)
            wanted += [continuations[token] for token in needed]
        candidates = best_first(every)[: self._most_candidates] + best + wanted
        different = dict[tuple[int, ...], Scored]()
        for score, tokens in candidates:
            if score > -torch.inf:
                different[tuple(tokens)] = (score, tokens)
        return [*different.values()]

    def _allocate(self, candidates: list[Scored], length: int) -> list[Scored]:
        banks = dict[int, list[Scored]]()
        for score, tokens in best_first(candidates):
            missing = count_missing(tokens, self.phrases)
            if missing <= self.limit - length:
                banks.setdefault(missing, []).append((score, tokens))
        in_turns = zip_longest(*map(itemgetter(1), sorted(banks.items())))
        return [candidate for turn in in_turns for candidate in turn if candidate]

    def _penalty(self, length: int) -> float:
        lengths = torch.tensor([length])
        return float(length_penalty(lengths, self.penalty, self.penalty_type))

    @torch.no_grad()
    def _log_probabilities(self, tokens: list[int]) -> torch.Tensor:
        ids, written = torch.tensor([self.source]), torch.tensor([[self.start, *tokens]])
        logits = self.model(input_ids=ids, decoder_input_ids=written).logits
        return logits[0, -1].float().log_softmax(-1)


def best_first(hypotheses: list[Scored]) -> list[Scored]:
    return sorted(hypotheses, key=itemgetter(0), reverse=True)
