"""The decoding engine as the `custom_generate` of `generate()`, for requests whose steps are compiled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from vanilla_transformer.generation_vanilla_transformer import source_mask

from . import fast_search
from .engine import Engine
from .engine_pool import EnginePool
from .stopping_rule import StoppingRule

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
    follows = fast_search.all_known(stopping_criteria) and fast_search.fits_positions(model.config, levels)
    if engine is not None and follows and begin_first(model, levels, ids):
        yield partial(search_by_engine, engine=engine)
        return
    with fast_search.prepare_search(model, levels, ids, logits_processor, stopping_criteria) as search_of_call:
        yield search_of_call


def find_engine(model: Any, levels: Sequence[Mapping[str, Any]]) -> Engine | None:
    """Return an engine with compiled steps for a call, or None if there is none. The model keeps its engines."""
    pool = vars(model).setdefault("_engines", EnginePool())
    # The limits of the sentences differ, and the engine receives them with the sentences.
    call = {name: value for name, value in levels[0].items() if name not in _INPUTS | _LIMITS} | {"max_new_tokens": 1}
    if getattr(call.get("past_key_values"), "is_of_call", False):
        del call["past_key_values"]
    return pool.find_for(model, [call, *levels[1:]])


def begin_first(model: Any, levels: Sequence[Mapping[str, Any]], ids: torch.Tensor | None) -> bool:
    """Tell whether each source `(B, S)` has tokens to attend to, from its first position on without gaps."""
    mask = source_mask(model.config, ids, levels[0].get("attention_mask"))
    if mask is None:
        return True
    lengths = mask.bool().sum(dim=-1, keepdim=True)
    first = torch.arange(mask.shape[-1], device=mask.device) < lengths
    return bool(lengths.all()) and torch.equal(mask.bool(), first)


def search_by_engine(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    engine: Engine,
    **model_kwargs: Any,
) -> torch.Tensor:
    """Decode as [`beam_search.search`] does, with the same arguments and result. All sources [`begin_first`]."""
    beams, count = generation_config.num_beams, generation_config.num_return_sequences
    states, mask = model_kwargs["encoder_outputs"].last_hidden_state[::beams], model_kwargs.get("attention_mask")
    lengths = [states.shape[1]] * len(states) if mask is None else mask[::beams].sum(dim=1).tolist()
    stopping_rule = StoppingRule(stopping_criteria, len(states), states.device)
    limits = stopping_rule.longest - 1  # which count the start symbol
    found = engine.translate_encoded(states, lengths, limits.tolist(), count)
    rows = [torch.tensor(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses]
    pad = stopping_rule.eos[0] if generation_config.pad_token_id is None else generation_config.pad_token_id
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=int(pad))
    return torch.cat([input_ids[::beams].repeat_interleave(count, dim=0), tokens], dim=1)


__all__ = ["find_engine", "prepare_search", "search_by_engine"]
