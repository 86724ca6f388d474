# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
`generate()` as in section 6.1 of "Attention Is All You Need": beam search with the length penalty
of Wu et al. (2016), and at most `source length + 50` new tokens for each sentence of a batch.
"""

import copy
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation import LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from .compatibility_vanilla_transformer import CompatibleGenerationMixin, UserError

# The penalty of the `generate()` call in progress: the library passes only α to the two methods
# that apply it.
penalty_type_of_call: ContextVar[str] = ContextVar("length_penalty_type", default="power")


def paper_generation_config(
    pad_token_id: int | None,
    eos_token_id: int | list[int] | None,
    decoder_start_token_id: int | None,
    **changes: Any,
) -> GenerationConfig:
    """
    Return the paper's decoding (section 6.1): beam 4, α = 0.6, at most source length + 50 tokens.

    `early_stopping="never"` is Tensor2Tensor's rule: a sentence is done when no running hypothesis
    can still beat its finished ones, at any length. Differs from it, as in the library: a
    hypothesis cut off at the limit competes as if finished. `changes` are parameters of
    `generate()` that differ from the paper's.
    """
    search = {"num_beams": 4, "early_stopping": "never", "max_new_tokens_beyond_source": 50}
    penalty = {"length_penalty": 0.6, "length_penalty_type": "wu"}
    special = {"pad_token_id": pad_token_id, "eos_token_id": eos_token_id}
    special["decoder_start_token_id"] = decoder_start_token_id
    return GenerationConfig(**(search | penalty | special | changes))


def length_penalty(length: Any, alpha: float, penalty_type: str) -> Any:
    """Return the divisor of a log-probability: `((5 + length) / 6) ** α` for `"wu"` (eq. 14), or
    `length ** α`.
    """
    return ((5 + length) / 6) ** alpha if penalty_type == "wu" else length**alpha


def source_mask(
    config: PreTrainedConfig, ids: torch.Tensor | None, mask: torch.Tensor | None
) -> torch.Tensor | None:
    """
    Return the given mask, or one derived from padding: `(batch_size, source_length)`, 1 for tokens,
    0 for padding.

    With `pad_token_id == eos_token_id` the mask must be given. Without `config.source_eos`, EOS is
    masked as well.
    """
    if ids is None:
        return mask
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if mask is None and config.pad_token_id not in [None, *eos]:
        mask = ids.ne(config.pad_token_id).long()
    if config.source_eos or (mask is not None and mask.dim() != 2):
        return mask
    seen = torch.ones_like(ids) if mask is None else mask
    return seen * ~torch.isin(ids, torch.tensor(eos, device=ids.device))


class MaxNewTokensBeyondSource(StoppingCriteria):
    """Stop each hypothesis at the longest length of its sentence with the prompt: `max_lengths`,
    `(batch_size,)`.
    """

    def __init__(self, max_lengths: torch.Tensor):
        self.max_lengths = max_lengths

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor | None, **kwargs: Any
    ) -> torch.Tensor:
        """Return which rows stop, given `(batch_size * hypotheses, length)`, hypotheses of a
        sentence side by side.
        """
        hypotheses = input_ids.shape[0] // self.max_lengths.shape[0]
        max_lengths = self.max_lengths.to(input_ids.device).repeat_interleave(hypotheses)
        return input_ids.shape[1] >= max_lengths


class PaperGenerationMixin(CompatibleGenerationMixin):
    """
    `generate()` with two more parameters, given as keyword arguments or in the generation config,
    which saves them:

    - `length_penalty_type` (`str`): How `length_penalty` = α changes the score of a hypothesis with
      log-probability p and `len` generated tokens, EOS included. `"power"`, as in transformers:
      `p / len ** α`. `"wu"`, as in the paper: `p / ((5 + len) / 6) ** α`.
    - `max_new_tokens_beyond_source` (`int`, *optional*): Each sentence may become as long as its
      own source plus this many tokens. A limit given closer to the call (keyword, then
      `generation_config`, then the model's own config) replaces it, and so does `max_new_tokens`
      beside it. `max_length` beside it does not: `Seq2SeqTrainer` writes the library's default of
      20 there.
    """

    paper_parameters = ("length_penalty_type", "max_new_tokens_beyond_source")

    @torch.no_grad()
    def generate(
        self,
        inputs: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate token ids as the library does, with two more parameters and a source mask
        derived from padding.
        """
        settings = vars(generation_config) if generation_config else {}
        levels = [kwargs, settings, vars(self.generation_config)]
        penalty_type = closest(levels, "length_penalty_type") or "power"
        margin = closest_margin(levels)
        check_parameters(penalty_type, margin, closest(levels, "num_beams"))
        refuse_chunks(levels)
        kwargs = {
            name: value for name, value in kwargs.items() if name not in self.paper_parameters
        }
        ids = inputs if inputs is not None else kwargs.get("input_ids")
        check_rows(ids, kwargs.get("attention_mask"))
        kwargs |= _source_arguments(self.config, ids, kwargs)
        criteria = StoppingCriteriaList(stopping_criteria or [])
        changes: dict[str, Any] = {}
        if margin is not None:
            prompt_length = _prompt_length(levels)
            limit = MaxNewTokensBeyondSource(_source_lengths(ids, kwargs) + margin + prompt_length)
            criteria.append(limit)
            changes |= self._length_limit(int(limit.max_lengths.max()), prompt_length)
        is_beam_search = (closest(levels, "num_beams") or 1) > 1
        beams_of_library = is_beam_search and kwargs.get("custom_generate") is None
        if beams_of_library:
            changes["return_dict_in_generate"] = True
        if generation_config is None:
            kwargs |= changes
        else:  # in a copy: changes as keywords beside a config would log a warning
            generation_config = copy.deepcopy(generation_config)
            generation_config.update(**changes)
        token = penalty_type_of_call.set(penalty_type)
        try:
            outputs = super().generate(
                inputs, generation_config, logits_processor, criteria, **kwargs
            )
        finally:
            penalty_type_of_call.reset(token)
        return _pad_after_end(outputs, levels) if beams_of_library else outputs

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Save the model; with one beam, without the penalty of beam search, which the library
        refuses to save.
        """
        config: Any = vars(self)["generation_config"]
        if config.num_beams == 1:
            greedy = copy.deepcopy(config)
            greedy.update(early_stopping=None, length_penalty=None)
            self.generation_config = greedy
        try:
            super().save_pretrained(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.generation_config = config

    def _length_limit(self, longest: int, prompt_length: int) -> dict[str, int | None]:
        """Return `max_new_tokens` for the longest sentence of the batch; shorter ones stop
        earlier.
        """
        if self.config.position_embedding_type == "learned":
            longest = min(longest, self.config.max_position_embeddings)
        longest = max(longest, prompt_length + 1)
        return {"max_new_tokens": longest - prompt_length, "max_length": None}

    def _update_finished_beams(self, **arguments: Any) -> tuple[torch.Tensor, ...]:
        """Divide scores by the penalty of this call instead of `length ** α`."""
        length = arguments["cur_len"] + 1 - arguments["decoder_prompt_len"]
        divisor = length_penalty(length, arguments["length_penalty"], penalty_type_of_call.get())
        arguments["topk_log_probs"] = arguments["topk_log_probs"] / divisor
        arguments["length_penalty"] = 0.0
        return super()._update_finished_beams(**arguments)

    def _check_early_stop_heuristic(self, **arguments: Any) -> torch.Tensor:  # type: ignore[override]
        """Compare running with finished hypotheses by the penalty of this call."""
        farthest = arguments["early_stopping"] == "never" and arguments["length_penalty"] > 0.0
        end = arguments["max_length" if farthest else "cur_len"]
        length = end - arguments["decoder_prompt_len"]
        divisor = length_penalty(length, arguments["length_penalty"], penalty_type_of_call.get())
        arguments["running_beam_scores"] = arguments["running_beam_scores"] / divisor
        arguments["length_penalty"] = 0.0
        return super()._check_early_stop_heuristic(**arguments)


def closest(levels: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the value given closest to the call, or None, which counts as not given.

    Scalars and rows of numpy and torch, which the library takes, become values of Python.
    """
    value: Any = next((level[name] for level in levels if level.get(name) is not None), None)
    return value.tolist() if hasattr(value, "tolist") and getattr(value, "ndim", 2) < 2 else value


def closest_margin(levels: Sequence[Mapping[str, Any]]) -> Any:
    """Return `max_new_tokens_beyond_source`, unless another limit replaces it; see
    [`PaperGenerationMixin`].
    """
    limits = ("max_length", "max_new_tokens", "max_new_tokens_beyond_source")
    for level in levels:
        if any(level.get(name) is not None for name in limits):
            if level.get("max_new_tokens") is not None:
                return None
            return closest([level], "max_new_tokens_beyond_source")
    return None


def check_rows(ids: torch.Tensor | None, mask: torch.Tensor | None = None) -> None:
    if ids is None:
        return
    if ids.dim() != 2 or ids.numel() == 0:
        raise UserError(
            f"`input_ids` must have at least one row of tokens, got the shape {tuple(ids.shape)}."
        )
    if mask is not None and mask.dim() == 2 and mask.shape != ids.shape:
        raise UserError(
            f"`attention_mask` must have the shape of `input_ids`, {tuple(ids.shape)}, got "
            f"{tuple(mask.shape)}."
        )


def refuse_chunks(levels: Sequence[Mapping[str, Any]]) -> None:
    if (size := closest(levels, "prefill_chunk_size")) is not None:
        raise UserError(
            "`prefill_chunk_size` must be left out, since models read prompts at once, got "
            f"{size!r}."
        )


def check_parameters(penalty_type: object, margin: object, beams: object) -> None:
    if penalty_type not in ("power", "wu"):
        raise UserError(f"`length_penalty_type` must be 'power' or 'wu', got {penalty_type!r}.")
    if beams is not None and (type(beams) is not int or beams < 1):
        raise UserError(f"`num_beams` must be an integer of 1 or more, got {beams!r}.")
    if margin is not None and (type(margin) is not int or margin < 0):
        raise UserError(
            "`max_new_tokens_beyond_source` must be an integer of 0 or more, or None, got "
            f"{margin!r}."
        )


def _source_arguments(
    config: PreTrainedConfig, ids: torch.Tensor | None, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the source mask and a copy of given encoder outputs, whose rows the library repeats in
    place.
    """
    arguments = {"attention_mask": source_mask(config, ids, keywords.get("attention_mask"))}
    outputs = keywords.get("encoder_outputs")
    if outputs is not None:
        named = isinstance(outputs, ModelOutput)
        arguments["encoder_outputs"] = copy.copy(outputs) if named else BaseModelOutput(*outputs)
    return arguments


def _source_lengths(ids: torch.Tensor | None, arguments: Mapping[str, Any]) -> torch.Tensor:
    """Return the source tokens of each sentence, `(batch_size,)`; without a mask all positions
    count.
    """
    mask = arguments.get("attention_mask")
    if mask is not None and mask.dim() == 2:
        return mask.long().sum(dim=-1)
    source = arguments.get("inputs_embeds", ids)
    if arguments.get("encoder_outputs") is not None:
        source = arguments["encoder_outputs"][0]
    if source is None:
        return torch.tensor([1])
    return torch.tensor([source.shape[1]] * source.shape[0])


def _prompt_length(levels: Sequence[Mapping[str, Any]]) -> int:
    """Return how many decoder tokens are given, with the start symbol that the library prepends if
    it is missing.
    """
    prompt = levels[0].get("decoder_input_ids")
    if prompt is None:
        return 1
    start = torch.as_tensor(closest(levels, "decoder_start_token_id"), device=prompt.device)
    return prompt.shape[1] + int((prompt[:, 0] != start).all())


def _pad_after_end(
    outputs: ModelOutput, levels: Sequence[Mapping[str, Any]]
) -> ModelOutput | torch.Tensor:
    """Pad hypotheses that the limit cut: with `pad_token_id=0` the library fills them up with
    EOS.
    """
    pad, generated = closest(levels, "pad_token_id"), outputs.beam_indices.shape[1]
    if pad is not None:
        outputs.sequences[:, -generated:].masked_fill_(outputs.beam_indices < 0, pad)
    return outputs if closest(levels, "return_dict_in_generate") else outputs.sequences


__all__ = [
    "MaxNewTokensBeyondSource",
    "PaperGenerationMixin",
    "paper_generation_config",
    "source_mask",
]
