"""
Greedy and beam search as a textbook writes them: whole sequences, and the model called on each of
them at every step.

They define what the engine computes. They are slow, and have no caches, slots or static shapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

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
