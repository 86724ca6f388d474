"""
The hypotheses of a beam search: the running ones, and the best finished ones of each sentence.

The rules for when a finished hypothesis replaces another, and when a sentence is done, follow transformers. Differs
from Tensor2Tensor: a hypothesis that the length limit cuts off competes as if it were finished; there it counts only
if no hypothesis has ended.

Letters in shapes: B sentences in the batch, N beams, C candidates, T target tokens so far, V vocabulary.
"""

import torch
from transformers import GenerationConfig

from vanilla_transformer.generation_vanilla_transformer import length_penalty

from .stopping_rule import StoppingRule
from .top_k import top_continuations

UNLIKELY = -1.0e9  # the library's score of hypotheses that must not be chosen
_PER_SENTENCE = ["running", "running_scores", "finished", "finished_lengths", "finished_scores"]
_PER_SENTENCE += ["is_finished", "can_improve"]


class Hypotheses:
    """
    Running and finished hypotheses of each sentence.

    Args:
        prompt (`torch.LongTensor` of shape `(B, prompt_length)`): Start of every hypothesis.
        stopping_rule: When a hypothesis ends.
        options: As the library prepares it: with `num_beams`, `max_length`, `length_penalty` and `early_stopping`.
        penalty_type: `"wu"` or `"power"`.
        pad: Padding after the end.
    """

    def __init__(
        self,
        prompt: torch.Tensor,
        stopping_rule: StoppingRule,
        options: GenerationConfig,
        penalty_type: str,
        pad: int,
    ):
        sentences, beams, device = len(prompt), options.num_beams, prompt.device
        self.stopping_rule, self.options, self.penalty_type, self.pad = stopping_rule, options, penalty_type, pad
        self.prompt_length = prompt.shape[1]
        # At least `beams` of so many candidates continue, even if the best of each beam end.
        self.candidates = max(2, 1 + len(stopping_rule.eos)) * beams
        self.running = prompt[:, None].expand(-1, beams, -1)  # (B, N, T)
        self.running_scores = torch.zeros(sentences, beams, device=device)
        self.running_scores[:, 1:] = UNLIKELY  # at first all beams are the same
        self.finished = torch.full((sentences, beams, options.max_length), pad, device=device)
        self.finished[:, :, : self.prompt_length] = prompt[:, None]
        self.finished_lengths = torch.full((sentences, beams), self.prompt_length, device=device)
        self.finished_scores = torch.full((sentences, beams), UNLIKELY, device=device)
        self.is_finished = torch.zeros(sentences, beams, dtype=torch.bool, device=device)
        self.can_improve = torch.ones(sentences, 1, dtype=torch.bool, device=device)

    def advance(self, log_probabilities: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Continue the running hypotheses by the most likely tokens, given `(B, N, V)`.

        Returns:
            The new tokens and the beams that they continue, each `(B, N)`, and which sentences are done, `(B,)`.
        """
        length = self.running.shape[2] + 1
        scores, parents, tokens = top_continuations(log_probabilities, self.running_scores, self.candidates)
        ends = self.stopping_rule(tokens, length)  # (B, C)
        sequences = torch.cat([pick(self.running, parents), tokens[:, :, None]], dim=2)  # (B, C, T + 1)
        self._finish(sequences, scores, ends)
        running_scores = scores + ends * UNLIKELY
        best = running_scores.topk(self.options.num_beams)[1]
        self.running, self.running_scores = pick(sequences, best), pick(running_scores, best)
        self._update_can_improve(length)
        done = ~self.can_improve[:, 0] | ends.all(dim=1)
        if self.options.early_stopping is True:
            done |= self.is_finished.all(dim=1)
        return pick(tokens, best), pick(parents, best), done

    def keep(self, sentences: torch.Tensor) -> None:
        """Leave only the given sentences, by their places, in the batch."""
        for name in _PER_SENTENCE:
            setattr(self, name, getattr(self, name)[sentences])
        self.stopping_rule.keep(sentences)

    def _finish(self, sequences: torch.Tensor, scores: torch.Tensor, ends: torch.Tensor) -> None:
        """Let candidates that end, of the best `num_beams`, replace worse finished hypotheses."""
        beams, length = self.options.num_beams, sequences.shape[2]
        ends = ends.clone()
        ends[:, beams:] = False
        if not ends.any():
            return
        closed = ~self.can_improve
        if self.options.early_stopping is True:
            closed = closed | self.is_finished.all(dim=1, keepdim=True)
        scores = scores / self._penalty(length) + (closed.float() + (~ends).float()) * UNLIKELY
        padding = self.finished.new_full((*ends.shape, self.finished.shape[2] - length), self.pad)
        merged = torch.cat([self.finished, torch.cat([sequences, padding], dim=2)], dim=1)
        self.finished_scores, best = torch.cat([self.finished_scores, scores], dim=1).topk(beams)
        self.finished, self.is_finished = pick(merged, best), pick(torch.cat([self.is_finished, ends], dim=1), best)
        lengths = torch.cat([self.finished_lengths, torch.full_like(ends, length, dtype=torch.long)], dim=1)
        self.finished_lengths = pick(lengths, best)

    def _update_can_improve(self, length: int) -> None:
        """Update whether a running hypothesis could still beat the worst finished one."""
        farthest = self.options.early_stopping == "never" and self.options.length_penalty > 0.0
        best_possible = self.running_scores[:, :1] / self._penalty(self.options.max_length if farthest else length)
        worst = torch.where(self.is_finished, self.finished_scores.min(dim=1, keepdim=True)[0], UNLIKELY)
        self.can_improve &= (best_possible > worst).any(dim=1, keepdim=True)

    def _penalty(self, length: int) -> float:
        return length_penalty(length - self.prompt_length, self.options.length_penalty, self.penalty_type)


def pick(values: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """Return `values` of shape `(B, beams, …)` at the given beams, `(B, k)`."""
    sentences = torch.arange(len(values), device=values.device)[:, None]
    return values[sentences, beams]


__all__ = ["UNLIKELY", "Hypotheses", "pick"]
