"""
Greedy and beam search with the tokens of the library's own, and faster (section 6.1 of "Attention Is All You Need").

Letters in shapes: B sentences in the batch, N beams, V vocabulary, S source length, D d_model.
"""

from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from .decode_step import IncrementalDecoder
from .finished_hypotheses import Hypotheses
from .stopping_rule import StoppingRule
from .top_k import argmax


def search(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    penalty_type: str,
    **model_kwargs: Any,
) -> torch.Tensor:
    """
    Run greedy or beam search as the `custom_generate` of a call.

    Args:
        input_ids (`torch.LongTensor` of shape `(B * N, prompt_length)`): Each prompt once for each beam.
        logits_processor, stopping_criteria, generation_config: As `generate()` prepares them.
        penalty_type: `"wu"` or `"power"`.
        model_kwargs: `encoder_outputs` and, optionally, `attention_mask`, `(B * N, S, D)` and `(B * N, S)`.

    Returns:
        Token ids `(B * num_return_sequences, length)`.
    """
    beams = generation_config.num_beams
    prompt = input_ids[::beams]
    stopping_rule = StoppingRule(stopping_criteria, len(prompt), prompt.device)
    states, mask = model_kwargs["encoder_outputs"].last_hidden_state, model_kwargs.get("attention_mask")
    decoder = IncrementalDecoder(model, states[::beams], None if mask is None else mask[::beams], beams)
    pad = generation_config.pad_token_id
    pad = int(stopping_rule.eos[0]) if pad is None else pad
    if beams == 1:
        return _greedy_search(decoder, prompt, logits_processor, stopping_rule, pad)
    hypotheses = Hypotheses(prompt, stopping_rule, generation_config, penalty_type, pad)
    return _beam_search(decoder, hypotheses, prompt, logits_processor, generation_config.num_return_sequences)


def _greedy_search(
    decoder: IncrementalDecoder, prompt: torch.Tensor, processors: Any, stopping_rule: StoppingRule, pad: int
) -> torch.Tensor:
    """Return `(B, length)`: at each step the most likely token."""
    sequences = prompt
    live, done = torch.arange(len(prompt), device=prompt.device), prompt.new_zeros(len(prompt), dtype=torch.bool)
    logits = decoder.start(prompt)
    while True:
        tokens = argmax(processors(sequences[live], logits)).masked_fill(done, pad)
        column = torch.full_like(sequences[:, :1], pad)
        column[live, 0] = tokens
        sequences = torch.cat([sequences, column], dim=1)
        done |= stopping_rule(tokens[:, None], sequences.shape[1])[:, 0]
        if done.all():
            return sequences
        if _worth_leaving(done):
            unfinished = (~done).nonzero()[:, 0]
            live, tokens, done = live[unfinished], tokens[unfinished], done[unfinished]
            decoder.keep(unfinished)
            stopping_rule.keep(unfinished)
        logits = decoder.step(tokens[:, None])


def _beam_search(
    decoder: IncrementalDecoder, hypotheses: Hypotheses, prompt: torch.Tensor, processors: Any, num_return: int
) -> torch.Tensor:
    """Return `(B * num_return, length)`: the best finished hypotheses of each sentence, best first."""
    beams = hypotheses.options.num_beams
    results, longest = hypotheses.finished[:, :num_return].clone(), 0
    live, done = torch.arange(len(prompt), device=prompt.device), prompt.new_zeros(len(prompt), dtype=torch.bool)
    scores = processors(prompt, nn.functional.log_softmax(decoder.start(prompt), dim=-1))
    scores = scores[:, None].expand(-1, beams, -1)  # (B, N, V)
    while True:
        tokens, parents, now_done = hypotheses.advance(scores)
        done |= now_done
        if done.all() or _worth_leaving(done):
            results[live[done]] = hypotheses.finished[done][:, :num_return]
            longest = max(longest, int(hypotheses.finished_lengths[done][:, :num_return].max()))
            if done.all():
                return results.flatten(0, 1)[:, :longest]
            unfinished = (~done).nonzero()[:, 0]
            live, tokens, parents, done = live[unfinished], tokens[unfinished], parents[unfinished], done[unfinished]
            decoder.keep(unfinished)
            hypotheses.keep(unfinished)
        logits = decoder.step(tokens, parents)
        scores = processors(hypotheses.running.flatten(0, 1), nn.functional.log_softmax(logits, dim=-1))
        scores = scores.unflatten(0, (-1, beams))


def _worth_leaving(done: torch.Tensor) -> bool:
    """Tell whether enough sentences are done to pay for copying the keys and values of the others."""
    return int(done.sum()) * 8 >= len(done)


__all__ = ["search"]
