"""
Beam search of one source that records every hypothesis that it compares.

The rules are in [`Hypotheses`], as for the fast search. The log-probabilities come from the plain model: the decoder
reads all tokens of all hypotheses again at each step. So it is slow, and fit for one sentence.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin, closest, length_penalty
from vanilla_transformer.inference.forced_decoding import decoder_logits

from .finished_hypotheses import UNLIKELY, Hypotheses
from .stopping_rule import StoppingRule
from .top_k import top_continuations

_NEVER = UNLIKELY / 2  # the scores of hypotheses that must not be chosen are lower


class Candidate(NamedTuple):
    """
    A hypothesis that was compared with others in one step of the search.

    Attributes:
        tokens: The generated tokens.
        log_probability: Of all of them, in nats.
        state: `"kept"` if the search continued it, `"finished"`, `"dropped"`, or `"unfinished"` if the search ended
            before.
        score: `log_probability` divided by the length penalty.
    """

    tokens: tuple[int, ...]
    log_probability: float
    state: str
    score: float


class RecordedSearch(NamedTuple):
    """
    A search, step by step.

    Attributes:
        steps: The candidates of each step, best first.
        best: The finished candidates that the search returns, best first.
    """

    steps: list[list[Candidate]]
    best: list[Candidate]


@torch.no_grad()
def record_search(model: Any, source: Sequence[int], **options: Any) -> RecordedSearch:
    """
    Translate one source as `generate()` does, and return all hypotheses that greedy or beam search compares.

    Args:
        model: A sequence-to-sequence model of this package in evaluation mode.
        source: Token ids, as the model was trained: usually with EOS at the end.
        options: Keyword arguments of `generate()`.

    Raises:
        ValueError: The options ask for sampling.
    """
    levels = [options, vars(model.generation_config)]
    if closest(levels, "do_sample"):
        raise ValueError("Only greedy and beam search can be recorded, but the options ask for `do_sample`.")
    steps: list[list[Candidate]] = []
    best: list[Candidate] = []
    ids = torch.tensor([source], device=model.device)

    def search(
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        penalty_type: str,
        **model_kwargs: Any,
    ) -> Tensor:
        rule = StoppingRule(stopping_criteria, 1, input_ids.device)
        hypotheses = Hypotheses(input_ids[:1], rule, generation_config, penalty_type, _pad(generation_config, rule))
        done = False
        while not done:
            scores = _next_scores(model, ids, model_kwargs["encoder_outputs"], hypotheses, logits_processor)
            done = _advance(hypotheses, scores, steps)
        best.extend(_returned(hypotheses, steps))
        return hypotheses.finished[0, :1]

    with _replaced_search(model, search):
        model.generate(ids, **options, num_return_sequences=1)
    return RecordedSearch(steps, best)


@contextmanager
def _replaced_search(model: PaperGenerationMixin, search: Callable) -> Iterator[None]:
    """Let `generate()` of this model run `search`, with all that it prepares for its own search."""

    @contextmanager
    def prepare(_: Any, levels: Any, *others: Any) -> Iterator[Callable]:
        yield partial(search, penalty_type=closest(levels, "length_penalty_type") or "power")

    model.fast_search = prepare  # type: ignore[assignment]
    try:
        yield
    finally:
        del model.fast_search


def _next_scores(
    model: Any, ids: Tensor, encoded: BaseModelOutput, hypotheses: Hypotheses, processors: LogitsProcessorList
) -> Tensor:
    """Return the log-probability of each next token of the running hypotheses, `(1, N, V)`."""
    running = hypotheses.running[0]  # (N, T)
    logits = decoder_logits(model, ids.expand(len(running), -1), None, running, encoded)[:, -1].float()
    if hypotheses.options.num_beams == 1:  # as in the library, which processes logits in greedy search
        return processors(running, logits).log_softmax(dim=-1)[None]
    return processors(running, logits.log_softmax(dim=-1))[None]


def _advance(hypotheses: Hypotheses, log_probabilities: Tensor, steps: list[list[Candidate]]) -> bool:
    """Advance the search by one token, record the candidates, and return whether the search is done."""
    beams, running = hypotheses.options.num_beams, hypotheses.running[0].tolist()
    compared = top_continuations(log_probabilities, hypotheses.running_scores, hypotheses.candidates)
    ends = hypotheses.stopping_rule(compared[2], len(running[0]) + 1)[0].tolist()
    now_done = hypotheses.advance(log_probabilities)[2]
    done = bool(now_done) or (beams == 1 and ends[0])
    kept = {tuple(row) for row in hypotheses.running[0].tolist()}
    step = []
    for rank, (score, parent, token) in enumerate(zip(*(each[0].tolist() for each in compared), strict=True)):
        tokens = (*running[parent], token)
        if score < _NEVER:
            continue
        state = "dropped"
        if ends[rank]:
            state = "finished" if rank < beams else "dropped"
        elif tokens in kept:
            state = "unfinished" if done else "kept"
        generated = tokens[hypotheses.prompt_length :]
        step.append(Candidate(generated, score, state, score / _penalty(hypotheses, len(generated))))
    steps.append(step)
    return done


def _returned(hypotheses: Hypotheses, steps: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Return the finished candidates that the search returns."""
    finished = {each.tokens: each for step in steps for each in step if each.state == "finished"}
    rows = zip(hypotheses.finished[0].tolist(), hypotheses.finished_lengths[0].tolist(), strict=True)
    best = [tuple(row[hypotheses.prompt_length : length]) for row, length in rows]
    return [finished[tokens] for tokens in best if tokens in finished]


def _penalty(hypotheses: Hypotheses, length: int) -> float:
    return length_penalty(length, hypotheses.options.length_penalty, hypotheses.penalty_type)


def _pad(config: GenerationConfig, rule: StoppingRule) -> int:
    return int(rule.eos[0]) if config.pad_token_id is None else config.pad_token_id


__all__ = ["Candidate", "RecordedSearch", "record_search"]
