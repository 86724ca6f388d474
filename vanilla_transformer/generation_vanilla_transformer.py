# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Decoding as in section 6.1 of "Attention Is All You Need" inside `generate()`: beam search with the length penalty of
Wu et al. (2016), and at most `source length + 50` new tokens, for each sentence of a batch on its own.

Both are entries of `generation_config.json`, so they are saved, loaded and overridden like any other:
`length_penalty_type` and `max_new_tokens_beyond_source`.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation import GenerationMixin, MaxLengthCriteria, StoppingCriteriaList
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from .linear_vanilla_transformer import packed_linears
from .search_vanilla_transformer import MaxNewTokensBeyondSource, SearchRequest, beam_search, can_search, greedy_search

# What `generate()` takes beyond the library's own parameters.
_PAPER_PARAMETERS = ("length_penalty_type", "max_new_tokens_beyond_source")
# Source tokens of one call from which on packing the weights takes less time than it saves.
_TOKENS_WORTH_PACKING = 64
# The library's default, which Seq2SeqTrainer writes into the model's generation config after its first batch.
_LIBRARY_MAX_LENGTH = 20


def paper_generation_config(
    pad_token_id: int | None, eos_token_id: int | list[int] | None, decoder_start_token_id: int | None, **changes: Any
) -> GenerationConfig:
    """
    The paper's decoding (section 6.1): beam 4, α = 0.6, at most source length + 50 tokens.

    `early_stopping="never"` is Tensor2Tensor's rule: a sentence is done when no running hypothesis could still beat
    its finished ones, however long it became.

    Args:
        changes: Parameters of `generate()` that shall differ from the paper's.
    """
    parameters = {
        "num_beams": 4,
        "length_penalty": 0.6,
        "length_penalty_type": "wu",
        "max_new_tokens_beyond_source": 50,
        "early_stopping": "never",
        "pad_token_id": pad_token_id,
        "eos_token_id": eos_token_id,
        "decoder_start_token_id": decoder_start_token_id,
    }
    return GenerationConfig(**{**parameters, **changes})


class WuLengthPenalty(float):
    """
    The exponent α of Wu et al. (2016), equation 14: `length ** WuLengthPenalty(α)` is `((5 + length) / 6) ** α`.

    The library's beam search divides by `length ** length_penalty` wherever it compares hypotheses. Given this
    exponent it divides by the paper's penalty instead, in each of those places, with no copy of its code.
    """

    def __rpow__(self, length: Any, modulo: None = None) -> Any:
        return ((5.0 + length) / 6.0) ** float(self)


class PaperGenerationMixin(GenerationMixin):
    """
    `generate()` with two more parameters, accepted as keyword arguments or from the generation config:

    - `length_penalty_type` (`str`): what `length_penalty` = α means for the score of a hypothesis with log-probability
      p and `len` generated tokens, EOS counted. `"power"`, as in transformers: `p / len ** α`. `"wu"`, as in the
      paper: `p / ((5 + len) / 6) ** α`.
    - `max_new_tokens_beyond_source` (`int`, *optional*): each sentence may become as long as its own source plus this
      many tokens, EOS counted on both sides. A `max_new_tokens` or `max_length` given beside it or closer to the call
      (keyword before given config before the model's own config) replaces it.

    Where no source mask is given it is derived from padding.

    Greedy and beam search that ask for nothing but tokens are those of `search_vanilla_transformer`, which give what
    the library's own give; every other request is the library's.
    """

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in the library, with two more parameters; see the class."""
        tokens = inputs if inputs is not None else kwargs.get("input_ids")
        if tokens is None or tokens.numel() < _TOKENS_WORTH_PACKING:
            return super().generate(inputs, *args, **kwargs)
        with packed_linears(self):
            return super().generate(inputs, *args, **kwargs)

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        own = dict(vars(self.generation_config))
        if own.get("max_length") == _LIBRARY_MAX_LENGTH:
            own["max_length"] = None
        levels = [kwargs, {} if generation_config is None else vars(generation_config), own]
        others = {name: value for name, value in kwargs.items() if name not in _PAPER_PARAMETERS}
        generation_config, model_kwargs = super()._prepare_generation_config(generation_config, **others)
        generation_config.length_penalty_type = _closest(levels, "length_penalty_type") or "power"
        generation_config.max_new_tokens_beyond_source = _closest_margin(levels)
        _check_paper_parameters(generation_config)
        return generation_config, model_kwargs

    def _prepare_model_inputs(self, inputs: Any, bos_token_id: Any, model_kwargs: dict[str, Any]) -> tuple:
        encoder_outputs = model_kwargs.get("encoder_outputs")
        if encoder_outputs is not None:  # a copy, since the library repeats its rows in place for the beams
            named = isinstance(encoder_outputs, ModelOutput)
            copied = copy.copy(encoder_outputs) if named else BaseModelOutput(*encoder_outputs)
            model_kwargs["encoder_outputs"] = copied
        inputs, input_name, model_kwargs = super()._prepare_model_inputs(inputs, bos_token_id, model_kwargs)
        if input_name == "input_ids":
            mask = source_mask(self.config, inputs, model_kwargs.get("attention_mask"))
            if mask is not None:
                model_kwargs["attention_mask"] = mask
        return inputs, input_name, model_kwargs

    def _prepare_generated_length(self, generation_config: GenerationConfig, **kwargs: Any) -> GenerationConfig:
        """Makes room for the longest sentence of the batch; the shorter ones end by `MaxNewTokensBeyondSource`."""
        margin = generation_config.max_new_tokens_beyond_source
        if margin is None:
            return super()._prepare_generated_length(generation_config=generation_config, **kwargs)
        generation_config.max_new_tokens = kwargs["inputs_tensor"].shape[1] + margin
        kwargs["has_default_max_length"] = True  # there is no other length to warn about
        generation_config = super()._prepare_generated_length(generation_config=generation_config, **kwargs)
        if not self._has_endless_positions():
            generation_config.max_length = min(generation_config.max_length, self.config.max_position_embeddings)
        return generation_config

    def _get_stopping_criteria(self, *args: Any, **kwargs: Any) -> StoppingCriteriaList:
        criteria = super()._get_stopping_criteria(*args, **kwargs)
        for criterion in criteria:
            if isinstance(criterion, MaxLengthCriteria) and self._has_endless_positions():
                criterion.max_position_embeddings = None  # or it warns of a limit that sinusoids do not have
        return criteria

    def _has_endless_positions(self) -> bool:
        return self.config.position_embedding_type == "sinusoidal"

    def _beam_search(
        self,
        input_ids: torch.LongTensor,
        logits_processor: Any,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **kwargs: Any,
    ) -> Any:
        generation_config = copy.copy(generation_config)
        if generation_config.length_penalty_type == "wu":
            generation_config.length_penalty = WuLengthPenalty(generation_config.length_penalty)
        stopping_criteria = _with_source_limit(stopping_criteria, input_ids, generation_config, kwargs)
        if can_search(self, logits_processor, stopping_criteria, generation_config, kwargs):
            return self._search(beam_search, input_ids, logits_processor, stopping_criteria, generation_config, kwargs)
        wants_dict = generation_config.return_dict_in_generate
        generation_config.return_dict_in_generate = True
        outputs = super()._beam_search(input_ids, logits_processor, stopping_criteria, generation_config, **kwargs)
        # The library fills up with EOS where the padding's id is 0, as if a hypothesis cut by the limit had ended.
        if generation_config._pad_token_tensor is not None:
            generated = outputs.sequences[:, input_ids.shape[1] :]
            generated.masked_fill_(outputs.beam_indices < 0, generation_config._pad_token_tensor)
        return outputs if wants_dict else outputs.sequences

    def _sample(
        self,
        input_ids: torch.LongTensor,
        logits_processor: Any,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **kwargs: Any,
    ) -> Any:
        stopping_criteria = _with_source_limit(stopping_criteria, input_ids, generation_config, kwargs)
        if can_search(self, logits_processor, stopping_criteria, generation_config, kwargs):
            return self._search(
                greedy_search, input_ids, logits_processor, stopping_criteria, generation_config, kwargs
            )
        return super()._sample(input_ids, logits_processor, stopping_criteria, generation_config, **kwargs)

    def _search(
        self,
        search: Callable[[SearchRequest], torch.Tensor],
        input_ids: torch.LongTensor,
        logits_processor: Any,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """A search of our own, which takes each sentence once, not once for each of its beams."""
        beams = generation_config.num_beams
        mask = model_kwargs.get("attention_mask")
        request = SearchRequest(
            self,
            input_ids[::beams],
            logits_processor,
            stopping_criteria,
            generation_config,
            source_states=model_kwargs["encoder_outputs"].last_hidden_state[::beams],
            source_mask=None if mask is None else mask[::beams],
        )
        return search(request)

    def _assisted_decoding(
        self,
        input_ids: torch.LongTensor,
        logits_processor: Any,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        inputs_tensor: torch.Tensor | None = None,  # named here because `generate` looks for it in the signature
        **kwargs: Any,
    ) -> Any:
        """Takes one sentence and adds several tokens at a time, so that its limit has to be `max_length` as well."""
        limit = _source_limit(input_ids, generation_config, kwargs)
        if limit is not None:
            generation_config = copy.copy(generation_config)
            generation_config.max_length = min(generation_config.max_length, int(limit.max_lengths.max()))
            stopping_criteria = StoppingCriteriaList([*stopping_criteria, limit])
        return super()._assisted_decoding(
            input_ids, logits_processor, stopping_criteria, generation_config, inputs_tensor=inputs_tensor, **kwargs
        )


def source_mask(
    config: Any, input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> torch.Tensor | None:
    """
    The given mask, or one derived from padding, `(batch_size, source_length)` with 1 for tokens. Padding that also
    ends a sentence cannot be told from it, so a model with `pad_token_id == eos_token_id` needs the mask given.

    Without `config.source_eos` EOS is masked as well.
    """
    if input_ids is None:
        return attention_mask
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if attention_mask is None and config.pad_token_id not in [None, *eos]:
        attention_mask = input_ids.ne(config.pad_token_id).long()
    if config.source_eos or (attention_mask is not None and attention_mask.dim() != 2):
        return attention_mask
    seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    return seen * ~torch.isin(input_ids, torch.tensor(eos, device=input_ids.device))


def _closest(levels: list[dict[str, Any]], name: str) -> Any:
    """The value given closest to the call; None, as elsewhere in `generate()`, is not given."""
    return next((level[name] for level in levels if level.get(name) is not None), None)


def _closest_margin(levels: list[dict[str, Any]]) -> int | None:
    """`max_new_tokens_beyond_source`, unless another kind of limit is given as close to the call."""
    for level in levels:
        if level.get("max_length") is not None or level.get("max_new_tokens") is not None:
            return None
        if level.get("max_new_tokens_beyond_source") is not None:
            return level["max_new_tokens_beyond_source"]
    return None


def _check_paper_parameters(generation_config: GenerationConfig) -> None:
    if generation_config.length_penalty_type not in ("power", "wu"):
        raise ValueError(
            f"`length_penalty_type` must be 'power' or 'wu', got {generation_config.length_penalty_type!r}."
        )
    beams = generation_config.num_beams
    if beams is not None and (type(beams) is not int or beams < 1):
        raise ValueError(f"`num_beams` must be an integer of 1 or more, got {beams!r}.")
    margin = generation_config.max_new_tokens_beyond_source
    if margin is not None and (type(margin) is not int or margin < 0):
        raise ValueError(f"`max_new_tokens_beyond_source` must be an integer of 0 or more, or None, got {margin!r}.")


def _source_limit(
    input_ids: torch.LongTensor, generation_config: GenerationConfig, model_kwargs: dict[str, Any]
) -> MaxNewTokensBeyondSource | None:
    """The limit by source length, where it is asked for."""
    margin = generation_config.max_new_tokens_beyond_source
    if margin is None:
        return None
    mask = model_kwargs.get("attention_mask")
    if mask is None:
        mask = torch.ones_like(model_kwargs["encoder_outputs"][0][..., 0], dtype=torch.long)
    # The library has repeated each sentence for its beams (or returned sequences); the limit is per row all the same.
    return MaxNewTokensBeyondSource(mask.long().sum(dim=-1), margin, prompt_length=input_ids.shape[1])


def _with_source_limit(
    stopping_criteria: StoppingCriteriaList,
    input_ids: torch.LongTensor,
    generation_config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> StoppingCriteriaList:
    """The criteria of one call, with the limit by source length among them where it is asked for."""
    limit = _source_limit(input_ids, generation_config, model_kwargs)
    return stopping_criteria if limit is None else StoppingCriteriaList([*stopping_criteria, limit])


__all__ = [
    "MaxNewTokensBeyondSource",
    "PaperGenerationMixin",
    "WuLengthPenalty",
    "paper_generation_config",
    "source_mask",
]
