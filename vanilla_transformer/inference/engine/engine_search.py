"""The decoding engine as the `custom_generate` of `generate()`, for requests whose steps are compiled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import EosTokenCriteria

from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin, closest, source_mask
from vanilla_transformer.inference.search import fast_search
from vanilla_transformer.inference.search.stopping_rule import KNOWN_CRITERIA, StoppingRule

from .engine import Engine, Hypothesis
from .engine_pool import EnginePool
from .prefill import reads_padding

_INPUTS = {"input_ids", "attention_mask"}
_LIMITS = {"max_new_tokens_beyond_source", "max_new_tokens", "max_length"}


@contextmanager
def prepare_search(
    model: Any,
    levels: Sequence[Mapping[str, Any]],
    ids: torch.Tensor | None,
    logits_processor: Sequence[Any] | None,
    stopping_criteria: Sequence[Any],
) -> Iterator[Callable | None]:
    """Prepare a model for one call of `generate()`: for the engine if its steps are compiled, or the fast search.

    See [`fast_search.prepare_search`] for the arguments and the result.
    """
    engine = None if ids is None or logits_processor else find_engine(model, levels)  # rarely one: the cheapest test
    follows = all(map(_is_limit, stopping_criteria)) and fast_search.fits_positions(model.config, levels)
    if engine is not None and follows:
        mask = source_mask(model.config, ids, levels[0].get("attention_mask"))
        if mask is None or begin_first(mask):
            yield partial(search_by_engine, engine=engine)
            return
    with fast_search.prepare_search(model, levels, ids, logits_processor, stopping_criteria) as search_of_call:
        yield search_of_call


def find_prompt_search(model: Any, levels: Sequence[Mapping[str, Any]]) -> Callable | None:
    """Return the `custom_generate` of a call that continues prompts, or None if only the library can do it.

    Args:
        levels: Keyword arguments of the call, options of its generation config and of the model's.
    """
    call = {name: value for name, value in levels[0].items() if value is not None}
    levels, ids = [call, *levels[1:]], call.get("input_ids")
    if ids is None or any(closest(levels, name) is not None for name in PaperGenerationMixin.paper_parameters):
        return None
    engine = find_engine(model, levels)  # rarely one: the cheapest test
    if engine is None or not fast_search.fits_positions(model.config, levels):
        return None
    mask = prompt_mask(ids, levels)
    follows = mask.shape == ids.shape and begin_first(mask.flip(1)) and (mask.all() or not reads_padding(model))
    return partial(continue_by_engine, engine=engine, lengths=mask.sum(dim=1)) if follows else None


def find_engine(model: Any, levels: Sequence[Mapping[str, Any]]) -> Engine | None:
    """Return an engine with compiled steps for a call, or None if there is none. The model keeps its engines."""
    if closest(levels, "do_sample"):
        return None  # the library samples by the generator of torch
    pool = vars(model).setdefault("_engines", EnginePool())
    # The limits of the sentences differ, and the engine receives them with the sentences.
    call = {name: value for name, value in levels[0].items() if name not in _INPUTS | _LIMITS} | {"max_new_tokens": 1}
    if getattr(call.get("past_key_values"), "is_of_call", False):
        del call["past_key_values"]
    return pool.find_for(model, [call, *levels[1:]])


def _is_limit(criterion: Any) -> bool:
    """Tell whether a stopping criterion limits lengths. The engine takes EOS from the options of a call only."""
    return type(criterion) in KNOWN_CRITERIA and not isinstance(criterion, EosTokenCriteria)


def prompt_mask(ids: torch.Tensor, levels: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """Return the mask of prompts `(B, L)`: the given one, or the one that the library derives from padding."""
    mask, pad, eos = (closest(levels, name) for name in ("attention_mask", "pad_token_id", "eos_token_id"))
    if mask is not None:
        return mask
    is_padding = pad is not None and pad not in (eos if isinstance(eos, list) else [eos])
    return ids.ne(pad).long() if is_padding else torch.ones_like(ids)


def begin_first(mask: torch.Tensor) -> bool:
    """Tell whether each row of a mask `(B, S)` has ones, from the first position on without gaps."""
    lengths = mask.bool().sum(dim=-1, keepdim=True)
    first = torch.arange(mask.shape[-1], device=mask.device) < lengths
    return len(mask) > 0 and bool(lengths.all()) and torch.equal(mask, first.to(mask.dtype))


def search_by_engine(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    engine: Engine,
    **model_kwargs: Any,
) -> torch.Tensor:
    """Decode as [`beam_search.search`] does, with the same arguments and result. Masks [`begin_first`]."""
    beams, count = generation_config.num_beams, generation_config.num_return_sequences
    states, mask = model_kwargs["encoder_outputs"].last_hidden_state[::beams], model_kwargs.get("attention_mask")
    lengths = [states.shape[1]] * len(states) if mask is None else mask[::beams].sum(dim=1).tolist()
    stopping_rule = StoppingRule(stopping_criteria, len(states), states.device)
    limits = stopping_rule.longest - 1  # which count the start symbol
    found = engine.translate_encoded(states, lengths, limits.tolist(), count)
    pad = stopping_rule.eos[0] if generation_config.pad_token_id is None else generation_config.pad_token_id
    return _append(input_ids[::beams], found, int(pad))


def continue_by_engine(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    engine: Engine,
    lengths: torch.Tensor,
    **model_kwargs: Any,
) -> torch.Tensor:
    """Continue prompts `(B * N, L)`, of which the last `lengths` `(B,)` tokens are no padding, as the library does."""
    beams, count = generation_config.num_beams, generation_config.num_return_sequences
    prompts = input_ids[::beams]
    stopping_rule = StoppingRule(stopping_criteria, len(prompts), prompts.device)
    limits = stopping_rule.longest - prompts.shape[1]  # which count padding
    tokens = [row[-length:] for row, length in zip(prompts.tolist(), lengths.tolist(), strict=True)]
    found = engine.continue_prompts(tokens, limits.tolist(), count)
    pad = generation_config.pad_token_id
    if pad is None or (pad == 0 and beams > 1):  # in its beam search, the library takes 0 for no padding
        pad = int(stopping_rule.eos[0])
    return _append(prompts, found, pad)


def _append(prompts: torch.Tensor, found: Sequence[Sequence[Hypothesis]], pad: int) -> torch.Tensor:
    """Append the hypotheses of each prompt, `(B, L)`, to copies of it: `(B * hypotheses, length)`."""
    rows = [torch.tensor(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad).to(prompts.device)
    return torch.cat([prompts.repeat_interleave(len(found[0]), dim=0), tokens], dim=1)


__all__ = ["continue_by_engine", "find_engine", "find_prompt_search", "prepare_search", "search_by_engine"]
