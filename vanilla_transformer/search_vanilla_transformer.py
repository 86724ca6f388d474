# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Greedy and beam search that give what the library's give, and faster (section 6.1 of "Attention Is All You Need").

Three things make the difference. The beams of a sentence are positions of one sequence: all share its keys and values,
those of the source among them, and a mask lets each beam see its own past, so that nothing is moved when beams change
places. Keys and values go to memory that is there already. A sentence that has ended leaves the batch.

Letters in shapes: B sentences still in the batch, N beams, T target tokens so far, S source length, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig
from transformers.cache_utils import DynamicLayer
from transformers.generation import logits_process, stopping_criteria

_BLOCK = 32  # entries of the vocabulary
_UNLIKELY = -1.0e9  # the library's score of what must not be chosen
# Processors that look at nothing but the row of tokens and the row of scores that they are given.
_PROCESSORS = (
    logits_process.ForcedBOSTokenLogitsProcessor,
    logits_process.ForcedEOSTokenLogitsProcessor,
    logits_process.InfNanRemoveLogitsProcessor,
    logits_process.MinLengthLogitsProcessor,
    logits_process.MinNewTokensLengthLogitsProcessor,
    logits_process.NoBadWordsLogitsProcessor,
    logits_process.NoRepeatNGramLogitsProcessor,
    logits_process.RepetitionPenaltyLogitsProcessor,
    logits_process.SuppressTokensAtBeginLogitsProcessor,
    logits_process.SuppressTokensLogitsProcessor,
)
_ARGUMENTS = {"attention_mask", "encoder_outputs", "logits_to_keep", "past_key_values", "use_cache"}
# What only the library's search does, or records.
_OPTIONS = (
    *("do_sample", "low_memory", "prefill_chunk_size", "is_assistant", "return_dict_in_generate"),
    *("output_scores", "output_logits", "output_attentions", "output_hidden_states"),
)
# Of hypotheses: what has a row for each sentence.
_STATE = ("running", "running_scores", "ended", "ended_lengths", "ended_scores", "has_ended", "can_improve")


class MaxNewTokensBeyondSource(stopping_criteria.StoppingCriteria):
    """
    Ends each hypothesis once it is `margin` tokens longer than its own source.

    Args:
        source_lengths (`torch.LongTensor` of shape `(batch_size,)`): Source tokens, EOS counted, padding not.
        margin (`int`): New tokens allowed beyond that, EOS counted, prompt not; the paper has 50.
        prompt_length (`int`): Decoder tokens that generation starts from.
    """

    def __init__(self, source_lengths: torch.Tensor, margin: int, prompt_length: int):
        self.max_lengths = source_lengths + margin + prompt_length

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor | None, **kwargs: Any) -> torch.Tensor:
        """Takes `(batch_size * hypotheses, length)` with the hypotheses of a sentence side by side."""
        hypotheses = input_ids.shape[0] // self.max_lengths.shape[0]
        max_lengths = self.max_lengths.to(input_ids.device).repeat_interleave(hypotheses)
        return input_ids.shape[1] >= max_lengths


class SearchRequest(NamedTuple):
    """
    What a search is given, with each sentence once.

    Args:
        model: One with a decoder and an `lm_head`.
        prompt (`torch.LongTensor` of shape `(batch_size, prompt_length)`): What the targets start with.
        processors, criteria, generation_config: What the library makes of the arguments of `generate()`.
        source_states (`torch.FloatTensor` of shape `(batch_size, source_length, d_model)`): The encoder's output.
        source_mask (`torch.Tensor` of shape `(batch_size, source_length)`): 1 for tokens, 0 for padding.
    """

    model: Any
    prompt: torch.Tensor
    processors: Any
    criteria: Any
    generation_config: GenerationConfig
    source_states: torch.Tensor
    source_mask: torch.Tensor | None


def can_search(
    model: Any, processors: Any, criteria: Any, generation_config: GenerationConfig, kwargs: dict[str, Any]
) -> bool:
    """Whether a request asks for nothing that only the library's own search has."""
    cache = kwargs.get("past_key_values")
    return (
        not any(getattr(generation_config, name, None) for name in _OPTIONS)
        and all(value is None or value is False for name, value in kwargs.items() if name not in _ARGUMENTS)
        and isinstance(cache, EncoderDecoderCache)
        and type(cache.self_attention_cache) is DynamicCache
        and not cache.self_attention_cache.offloading
        and not getattr(cache, "_is_user_defined", False)
        and all(type(processor) in _PROCESSORS for processor in processors)
        and all(_is_known(criterion) for criterion in criteria)
        and any(isinstance(criterion, stopping_criteria.EosTokenCriteria) for criterion in criteria)
        and generation_config._pad_token_tensor is not None
        and model.config._attn_implementation in ("eager", "sdpa")
        and not (model.training or model.config.output_attentions or model.config.output_hidden_states)
        # Hooks of offloading, and layers on several devices.
        and "forward" not in vars(model)
        and not hasattr(model, "hf_device_map")
    )


def _is_known(criterion: Any) -> bool:
    if type(criterion) is stopping_criteria.MaxLengthCriteria:
        longest = criterion.max_position_embeddings  # beyond which the library warns
        return longest is None or criterion.max_length <= longest
    return type(criterion) in (stopping_criteria.EosTokenCriteria, MaxNewTokensBeyondSource)


class _Ends:
    """When a hypothesis ends: at one of the EOS tokens, or at the length that its sentence may have."""

    def __init__(self, request: SearchRequest):
        sentences, device = len(request.prompt), request.prompt.device
        criteria = request.criteria
        eos = [c.eos_token_id.to(device) for c in criteria if isinstance(c, stopping_criteria.EosTokenCriteria)]
        self.eos = torch.cat([ids.flatten() for ids in eos])
        self.limits = torch.full((sentences,), torch.iinfo(torch.long).max, device=device)
        for criterion in criteria:
            if isinstance(criterion, stopping_criteria.MaxLengthCriteria):
                self.limits.clamp_(max=criterion.max_length)
            elif isinstance(criterion, MaxNewTokensBeyondSource):
                each = criterion.max_lengths.to(device)
                self.limits = torch.minimum(self.limits, each[:: len(each) // sentences])

    def __call__(self, tokens: torch.Tensor, length: int) -> torch.Tensor:
        """For the last tokens, `(B, candidates)`, of hypotheses that now have `length`."""
        return torch.isin(tokens, self.eos) | (length >= self.limits)[:, None]

    def keep(self, sentences: torch.Tensor) -> None:
        self.limits = self.limits[sentences]


class _RoomyLayer(DynamicLayer):
    """Keys and values of one layer in memory that is twice as large as needed whenever it is allocated."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room = tuple(states[:, :, :0] for states in (key_states, value_states))
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if end > self._room[0].shape[2]:
            self._room = tuple(self._enlarged(room, 2 * end) for room in self._room)
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values

    @staticmethod
    def _enlarged(old: torch.Tensor, size: int) -> torch.Tensor:
        new = old.new_empty(*old.shape[:2], size, old.shape[3])
        new[:, :, : old.shape[2]] = old
        return new

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        end = self.get_seq_length()
        self._room = tuple(room.index_select(0, indices) for room in self._room)
        self.keys, self.values = (room[:, :, :end] for room in self._room)


class _Decoder:
    """The decoder of sentences that go on together, with the keys and values of what it has seen."""

    def __init__(self, request: SearchRequest, beams: int):
        self._model = request.model
        self._source_states = request.source_states
        self._source_mask = None
        mask = request.source_mask
        if mask is not None and not mask.all():
            self._source_mask = _additive(mask[:, None, None, :].bool(), request.source_states.dtype)
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._cache.self_attention_cache.layer_class_to_replicate = _RoomyLayer
        self._beams = beams
        self._seen: torch.Tensor | None = None  # (B, N, keys): which of its sentence's keys a beam may see
        self._length = 0

    def start(self, prompt: torch.Tensor) -> torch.Tensor:
        """Logits `(B, V)` after `prompt` of shape `(B, T)`, which all beams of a sentence have in common."""
        logits = self._step(prompt, None)
        if self._beams > 1:
            self._seen = prompt.new_ones(len(prompt), self._beams, prompt.shape[1], dtype=torch.bool)
        return logits

    def step(self, tokens: torch.Tensor, parents: torch.Tensor | None = None) -> torch.Tensor:
        """
        Logits `(B * N, V)` after one more token of each beam.

        Args:
            tokens (`torch.LongTensor` of shape `(B, N)`): The new tokens.
            parents (`torch.LongTensor` of shape `(B, N)`): The beam that each one continues, with more than one beam.
        """
        if parents is None:
            return self._step(tokens, None)
        assert self._seen is not None
        inherited = self._seen.gather(1, parents[:, :, None].expand(-1, -1, self._seen.shape[2]))
        itself = torch.eye(self._beams, dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
        self._seen = torch.cat([inherited, itself], dim=2)
        return self._step(tokens, _additive(self._seen[:, None], self._source_states.dtype))

    def _step(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        beams_in_step = mask is not None
        last = self._length + (1 if beams_in_step else tokens.shape[1])
        positions = torch.arange(self._length, last, device=tokens.device)[None]
        self._length = last
        decoder = self._model.model.decoder
        if tokens.shape[1] > 1 and not beams_in_step:  # a prompt, whose mask the decoder makes
            states = decoder(
                input_ids=tokens,
                encoder_hidden_states=self._source_states,
                encoder_attention_mask=self._source_mask,
                past_key_values=self._cache,
                position_ids=positions,
                use_cache=True,
            ).last_hidden_state
        else:
            states = decoder.add_positions(decoder.embed_tokens(tokens), positions)
            states = decoder.run_layers(states, mask, self._source_states, self._source_mask, self._cache)
        states = states.flatten(0, 1) if beams_in_step else states[:, -1]
        return self._model.lm_head(states).float()

    def keep(self, sentences: torch.Tensor) -> None:
        """Leaves only these sentences in the batch. What layers need of the source's states is in the cache."""
        if self._source_mask is not None:
            self._source_mask = self._source_mask[sentences]
        if self._seen is not None:
            self._seen = self._seen[sentences]
        self._cache.batch_select_indices(sentences)


def _additive(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask to add to scores, from one that is True where a key may be seen."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def _worth_leaving(done: torch.Tensor) -> bool:
    """Whether enough sentences have ended for the copy of the others' keys and values to pay."""
    return int(done.sum()) * 8 >= len(done)


def greedy_search(request: SearchRequest) -> torch.Tensor:
    """Gives `(batch_size, length)`: the tokens that the library's greedy search gives."""
    prompt, pad = request.prompt, request.generation_config._pad_token_tensor
    ends, decoder = _Ends(request), _Decoder(request, beams=1)
    sequences = prompt
    live, done = torch.arange(len(prompt), device=prompt.device), prompt.new_zeros(len(prompt), dtype=torch.bool)
    logits = decoder.start(prompt)
    while True:
        tokens = _argmax(request.processors(sequences[live], logits)).masked_fill(done, pad)
        column = torch.full_like(sequences[:, :1], pad)
        column[live, 0] = tokens
        sequences = torch.cat([sequences, column], dim=1)
        done |= ends(tokens[:, None], sequences.shape[1])[:, 0]
        if done.all():
            return sequences
        if _worth_leaving(done):
            going_on = (~done).nonzero()[:, 0]
            live, tokens, done = live[going_on], tokens[going_on], done[going_on]
            decoder.keep(going_on)
            ends.keep(going_on)
        logits = decoder.step(tokens[:, None])


def _argmax(scores: torch.Tensor) -> torch.Tensor:
    """`scores.argmax(dim=-1)` of `(B, V)`, which takes much less time once the best block is known."""
    tokens, _ = _in_blocks(_block_maxima(scores).argmax(dim=-1, keepdim=True), scores.shape[1])
    return tokens.gather(1, scores.gather(1, tokens).argmax(dim=-1, keepdim=True))[:, 0]


def _block_maxima(scores: torch.Tensor) -> torch.Tensor:
    """`(…, V)` to `(…, blocks)`: the best score of each block of the vocabulary, the last of which may be smaller."""
    whole = scores.shape[-1] // _BLOCK
    maxima = scores[..., : whole * _BLOCK].unflatten(-1, (whole, _BLOCK)).amax(dim=-1)
    rest = scores[..., whole * _BLOCK :]
    return maxima if not rest.shape[-1] else torch.cat([maxima, rest.amax(dim=-1, keepdim=True)], dim=-1)


def _in_blocks(blocks: torch.Tensor, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of blocks `(B, n)`, `(B, n * _BLOCK)`; and which of them only fill up, the last token once more."""
    tokens = (blocks[..., None] * _BLOCK + torch.arange(_BLOCK, device=blocks.device)).flatten(-2)
    return tokens.clamp(max=vocab_size - 1), tokens >= vocab_size


class _Hypotheses:
    """
    The best hypotheses of each sentence: those that run, and those that have ended, with the library's rules for when
    one replaces another and when a sentence is done.
    """

    def __init__(self, request: SearchRequest):
        prompt, generation_config, ends = request.prompt, request.generation_config, _Ends(request)
        sentences, beams = len(prompt), generation_config.num_beams
        self.ends, self.options, self.beams = ends, generation_config, beams
        self.prompt_length = prompt.shape[1]
        # As many that at least `beams` go on if the best of all beams end.
        self.candidates = max(2, 1 + len(ends.eos)) * beams
        self.running = prompt[:, None].expand(-1, beams, -1)
        self.running_scores = torch.zeros(sentences, beams, device=prompt.device)
        self.running_scores[:, 1:] = _UNLIKELY  # at first all beams are the same
        self.ended = torch.full(
            (sentences, beams, generation_config.max_length), int(generation_config._pad_token_tensor),
            device=prompt.device,
        )  # fmt: skip
        self.ended[:, :, : self.prompt_length] = prompt[:, None]
        self.ended_lengths = torch.full((sentences, beams), self.prompt_length, device=prompt.device)
        self.ended_scores = torch.full((sentences, beams), _UNLIKELY, device=prompt.device)
        self.has_ended = torch.zeros(sentences, beams, dtype=torch.bool, device=prompt.device)
        self.can_improve = torch.ones(sentences, 1, dtype=torch.bool, device=prompt.device)

    def advance(self, log_probabilities: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Continues the running hypotheses by the likeliest tokens, given `(B, N, V)`.

        Returns:
            The new tokens and the beams that they continue, each `(B, N)`, and which sentences are done, `(B,)`.
        """
        length = self.running.shape[2] + 1
        scores, parents, tokens = _best_continuations(log_probabilities, self.running_scores, self.candidates)
        end = self.ends(tokens, length)
        sequences = torch.cat([_pick(self.running, parents), tokens[:, :, None]], dim=2)
        self._add_ended(sequences, scores, end)
        running_scores = scores + end * _UNLIKELY
        best = running_scores.topk(self.beams)[1]
        self.running, self.running_scores = _pick(sequences, best), _pick(running_scores, best)
        self._look_ahead(length)
        done = ~self.can_improve[:, 0] | end.all(dim=1)
        if self.options.early_stopping is True:
            done |= self.has_ended.all(dim=1)
        return _pick(tokens, best), _pick(parents, best), done

    def _add_ended(self, sequences: torch.Tensor, scores: torch.Tensor, end: torch.Tensor) -> None:
        """Of the candidates that end, those among the best `beams` may replace what has ended before."""
        end = end.clone()
        end[:, self.beams :] = False
        if not end.any():
            return
        length = sequences.shape[2]
        scores = scores / (length - self.prompt_length) ** self.options.length_penalty
        closed = ~self.can_improve
        if self.options.early_stopping is True:
            closed = closed | self.has_ended.all(dim=1, keepdim=True)
        scores = scores + (closed.float() + (~end).float()) * _UNLIKELY
        pad = self.ended.new_full((*sequences.shape[:2], self.ended.shape[2] - length), self.options._pad_token_tensor)
        merged = torch.cat([self.ended, torch.cat([sequences, pad], dim=2)], dim=1)
        self.ended_scores, best = torch.cat([self.ended_scores, scores], dim=1).topk(self.beams)
        self.ended, self.has_ended = _pick(merged, best), _pick(torch.cat([self.has_ended, end], dim=1), best)
        lengths = torch.cat([self.ended_lengths, torch.full_like(end, length, dtype=torch.long)], dim=1)
        self.ended_lengths = _pick(lengths, best)

    def _look_ahead(self, length: int) -> None:
        """Whether a running hypothesis could still become better than the worst that has ended."""
        penalty = self.options.length_penalty
        farthest = self.options.early_stopping == "never" and penalty > 0.0
        steps = (self.options.max_length if farthest else length) - self.prompt_length
        hoped = self.running_scores[:, :1] / steps**penalty
        worst = torch.where(self.has_ended, self.ended_scores.min(dim=1, keepdim=True)[0], _UNLIKELY)
        self.can_improve &= (hoped > worst).any(dim=1, keepdim=True)

    def keep(self, sentences: torch.Tensor) -> None:
        """Leaves only these sentences in the batch."""
        for name in _STATE:
            setattr(self, name, getattr(self, name)[sentences])
        self.ends.keep(sentences)


def _best_continuations(
    log_probabilities: torch.Tensor, running_scores: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """
    The `count` best of all beams of each sentence: their scores, the beams and the tokens, each `(B, count)`.

    The best are in the blocks of the vocabulary with the best maxima. So the long axis, which takes the time, is read
    once and not written.
    """
    vocab_size = log_probabilities.shape[2]
    maxima = _block_maxima(log_probabilities) + running_scores[:, :, None]  # (B, N, blocks)
    best = maxima.flatten(1).topk(min(count, maxima[0].numel()))[1]
    tokens, filling = _in_blocks(best % maxima.shape[2], vocab_size)
    parents = (best // maxima.shape[2]).repeat_interleave(_BLOCK, dim=1)
    within = log_probabilities.flatten(1).gather(1, parents * vocab_size + tokens) + running_scores.gather(1, parents)
    scores, place = within.masked_fill_(filling, -torch.inf).topk(count)
    return scores, parents.gather(1, place), tokens.gather(1, place)


def _pick(values: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """`values` of shape `(B, beams, …)` at the given beams, `(B, k)`."""
    sentences = torch.arange(len(values), device=values.device)[:, None]
    return values[sentences, beams]


def beam_search(request: SearchRequest) -> torch.Tensor:
    """
    Gives `(batch_size * num_return_sequences, length)`: the tokens that the library's beam search gives, with padding
    after the end.
    """
    prompt, processors = request.prompt, request.processors
    beams, returned = request.generation_config.num_beams, slice(request.generation_config.num_return_sequences)
    hypotheses, decoder = _Hypotheses(request), _Decoder(request, beams)
    results, longest = hypotheses.ended[:, returned].clone(), 0
    live, done = torch.arange(len(prompt), device=prompt.device), prompt.new_zeros(len(prompt), dtype=torch.bool)
    scores = processors(prompt, nn.functional.log_softmax(decoder.start(prompt), dim=-1))
    scores = scores[:, None].expand(-1, beams, -1)
    while True:
        tokens, parents, now_done = hypotheses.advance(scores)
        done |= now_done
        if done.all() or _worth_leaving(done):
            results[live[done]] = hypotheses.ended[done][:, returned]
            longest = max(longest, int(hypotheses.ended_lengths[done][:, returned].max()))
            if done.all():
                return results.flatten(0, 1)[:, :longest]
            going_on = (~done).nonzero()[:, 0]
            live, tokens, parents, done = live[going_on], tokens[going_on], parents[going_on], done[going_on]
            decoder.keep(going_on)
            hypotheses.keep(going_on)
        logits = decoder.step(tokens, parents)
        scores = processors(hypotheses.running.flatten(0, 1), nn.functional.log_softmax(logits, dim=-1))
        scores = scores.unflatten(0, (-1, beams))


__all__ = ["MaxNewTokensBeyondSource", "SearchRequest", "beam_search", "can_search", "greedy_search"]
