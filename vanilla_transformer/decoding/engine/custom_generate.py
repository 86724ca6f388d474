"""The decoding engine as the `custom_generate` of `generate()`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList
from transformers.generation import EosTokenCriteria
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer.decoding.options import CONFIG, TranslationOptions, options_of
from vanilla_transformer.generation_vanilla_transformer import (
    MaxNewTokensBeyondSource,
    PaperGenerationMixin,
    closest,
    source_mask,
)

from .engine import Engine, Hypothesis
from .engine_pool import LENGTH_LIMITS, EnginePool
from .supported_models import can_encode, fits_positions

# Arguments that ask for no other search; `Seq2SeqTrainer` passes the labels.
_INPUTS = {"input_ids", "inputs_embeds", "encoder_outputs", "attention_mask", "labels"}


def find_search(
    model: Any,
    levels: Sequence[Mapping[str, Any]],
    ids: torch.Tensor | None,
    logits_processor: Sequence[Any] | None,
    stopping_criteria: Sequence[Any],
) -> dict[str, Any] | None:
    """Return arguments with which `generate()` translates by an engine, or None if only the library can do it.

    They are the `custom_generate` of the call and, if it has source tokens, the encoder's outputs for them.

    Args:
        levels: Keyword arguments of the call, options of its generation config and of the model's.
        ids (`torch.LongTensor` of shape `(batch_size, source_length)`): Source tokens, if they are given.
        logits_processor, stopping_criteria: Of the call, besides the library's own.
    """
    if logits_processor or not all(map(_is_limit, stopping_criteria)) or not fits_positions(model.config, levels):
        return None
    engine = find_engine(model, levels)
    if engine is None:
        return None
    mask = source_mask(model.config, ids, levels[0].get("attention_mask"))
    if mask is not None and (mask.dim() != 2 or not begin_first(mask)):
        return None
    search = {"custom_generate": partial(search_by_engine, engine=engine)}
    if ids is None or levels[0].get("encoder_outputs") is not None or not can_encode(model):
        return search
    lengths = [ids.shape[1]] * len(ids) if mask is None else mask.bool().sum(dim=1).tolist()
    return search | {"encoder_outputs": BaseModelOutput(engine.encode(ids.tolist(), lengths))}


def find_prompt_search(model: Any, levels: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return arguments with which `generate()` continues prompts by an engine, or None if only the library can do it.

    Args:
        levels: Keyword arguments of the call, options of its generation config and of the model's.
    """
    ids = levels[0].get("input_ids")
    if ids is None or any(closest(levels, name) is not None for name in PaperGenerationMixin.paper_parameters):
        return None
    engine = find_engine(model, levels)
    if engine is None or not fits_positions(model.config, levels):
        return None
    mask = prompt_mask(ids, levels)
    follows = mask.shape == ids.shape and begin_first(mask.flip(1)) and bool(mask.any(dim=1).all())
    search = partial(continue_by_engine, engine=engine, lengths=mask.bool().sum(dim=1))
    return {"custom_generate": search} if follows else None


def find_engine(model: Any, levels: Sequence[Mapping[str, Any]]) -> Engine | None:
    """Return an engine for a call, or None if none decodes it. The model keeps its engines."""
    if closest(levels, "do_sample"):
        return None  # the library samples by the generator of torch
    none = [name for name, value in levels[0].items() if value is None and name not in LENGTH_LIMITS]
    if any(closest(levels[1:], name) is not None for name in none):
        return None  # the library turns these options off, whatever a config says
    if not hasattr(model, "engines"):
        model.engines = EnginePool()
    # The limits of the sentences differ, and the engine receives them with the sentences.
    left_out = _INPUTS.union(LENGTH_LIMITS, none)
    call = {name: value for name, value in levels[0].items() if name not in left_out} | {"max_new_tokens": 1}
    if not call.get("synced_gpus"):
        call.pop("synced_gpus", None)
    if any(closest([call, *levels[1:]], name) is not None for name in options_of().keys() - options_of(CONFIG)):
        return None  # the library refuses them
    return model.engines.find(model, TranslationOptions.from_levels([call, *levels[1:]]))


def _is_limit(criterion: Any) -> bool:
    """Tell whether a stopping criterion limits lengths. The engine takes EOS from the options of a call only."""
    return type(criterion) in (MaxLengthCriteria, MaxNewTokensBeyondSource)


def _longest(criteria: Iterable[Any], sentences: int) -> torch.Tensor:
    """Return the longest length that each sentence may have by the stopping criteria of a call, `(B,)`."""
    longest = torch.full((sentences,), torch.iinfo(torch.long).max)
    for criterion in criteria:
        if isinstance(criterion, MaxNewTokensBeyondSource):
            longest = torch.minimum(longest, criterion.max_lengths.cpu())
        elif isinstance(criterion, MaxLengthCriteria):
            longest = longest.clamp(max=criterion.max_length)
    return longest


def _first_eos(criteria: Iterable[Any]) -> int:
    """Return the first token that ends a hypothesis by the stopping criteria of a call."""
    return next(int(each.eos_token_id.flatten()[0]) for each in criteria if isinstance(each, EosTokenCriteria))


def prompt_mask(ids: torch.Tensor, levels: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """Return the mask of prompts `(B, L)`: the given one, or the one that the library derives from padding."""
    mask, pad, eos = (closest(levels, name) for name in ("attention_mask", "pad_token_id", "eos_token_id"))
    if mask is not None:
        return mask
    is_padding = pad is not None and pad not in (eos if isinstance(eos, list) else [eos])
    return ids.ne(pad).long() if is_padding else torch.ones_like(ids)


def begin_first(mask: torch.Tensor) -> bool:
    """Tell whether the ones of each row of a mask `(B, S)` are at its first positions, without gaps."""
    lengths = mask.bool().sum(dim=-1, keepdim=True)
    first = torch.arange(mask.shape[-1], device=mask.device) < lengths
    return len(mask) > 0 and torch.equal(mask, first.to(mask.dtype))


def search_by_engine(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    engine: Engine,
    **model_kwargs: Any,
) -> torch.Tensor:
    """Run greedy or beam search as the `custom_generate` of a call whose mask, if there is one, [`begin_first`].

    Args:
        input_ids (`torch.LongTensor` of shape `(B * N, 1)`): The start symbol once for each beam.
        logits_processor, stopping_criteria, generation_config: As `generate()` prepares them.
        model_kwargs: `encoder_outputs` and, optionally, `attention_mask`, `(B * N, S, D)` and `(B * N, S)`.

    Returns:
        Token ids `(B * num_return_sequences, length)`.
    """
    beams, count = generation_config.num_beams, generation_config.num_return_sequences
    states, mask = model_kwargs["encoder_outputs"].last_hidden_state[::beams], model_kwargs.get("attention_mask")
    lengths = [states.shape[1]] * len(states)
    if mask is not None:  # attention needs a position to see, also in a source of nothing but EOS that is not seen
        lengths = mask[::beams].bool().sum(dim=1).clamp(min=1).tolist()
    limits = _longest(stopping_criteria, len(states)) - 1  # which count the start symbol
    found = engine.translate_encoded(states, lengths, limits.tolist(), count)
    pad = generation_config.pad_token_id
    return _append(input_ids[::beams], found, _first_eos(stopping_criteria) if pad is None else pad)


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
    limits = _longest(stopping_criteria, len(prompts)) - prompts.shape[1]  # which count padding
    tokens = [row[-length:] for row, length in zip(prompts.tolist(), lengths.tolist(), strict=True)]
    found = engine.continue_prompts(tokens, limits.tolist(), count)
    pad = generation_config.pad_token_id
    if pad is None or (pad == 0 and beams > 1):  # in its beam search, the library takes 0 for no padding
        pad = _first_eos(stopping_criteria)
    return _append(prompts, found, pad)


def _append(prompts: torch.Tensor, found: Sequence[Sequence[Hypothesis]], pad: int) -> torch.Tensor:
    """Append the hypotheses of each prompt, `(B, L)`, to copies of it: `(B * hypotheses, length)`."""
    rows = [torch.tensor(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad).to(prompts.device)
    return torch.cat([prompts.repeat_interleave(len(found[0]), dim=0), tokens], dim=1)
