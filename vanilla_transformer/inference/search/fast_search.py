"""
The fast search of `generate()`, which the package registers with [`PaperGenerationMixin`].

It runs greedy and beam search that ask for tokens only. All other requests are left to the library.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.modules import module as global_hooks
from transformers.generation import logits_process
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module
from transformers.utils import output_capturing

from vanilla_transformer.generation_vanilla_transformer import closest
from vanilla_transformer.inference.weight_packing import packed_weights
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerDecoder,
    VanillaTransformerDecoderLayer,
)

from .beam_search import search
from .stopping_rule import KNOWN_CRITERIA

# Processors that look at nothing but the tokens and the scores that they are given.
_KNOWN_PROCESSORS = (
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
# Options of a generation config of plain greedy and beam search ...
PLAIN_OPTIONS = {"length_penalty_type", "max_new_tokens_beyond_source", "max_length", "max_new_tokens", "num_beams"}
PLAIN_OPTIONS |= {"min_new_tokens", "early_stopping", "use_cache", "length_penalty", "num_return_sequences"}
PLAIN_OPTIONS |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}
# ... and those that change neither of them.
_OTHER_FILTERS = {"min_p", "top_h", "typical_p", "eta_cutoff"}
PLAIN_OPTIONS |= {"temperature", "top_k", "top_p", "epsilon_cutoff"} | _OTHER_FILTERS
PLAIN_OPTIONS |= {"num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"}
PLAIN_OPTIONS |= {"assistant_lookbehind", "target_lookbehind", "disable_compile", "transformers_version"}
# Options of greedy and beam search by the engine, and of its sampling.
SEARCH_OPTIONS = PLAIN_OPTIONS | {"forced_bos_token_id"}
SAMPLING_OPTIONS = SEARCH_OPTIONS - _OTHER_FILTERS | {"do_sample"}
# What the search here follows by processors of the library, besides the plain options, and arguments of a call.
_FOLLOWED = PLAIN_OPTIONS | {"min_length", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids"}
_FOLLOWED |= {"forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "suppress_tokens"}
_FOLLOWED |= {"begin_suppress_tokens"}
_FOLLOWED |= {"input_ids", "inputs_embeds", "attention_mask", "encoder_outputs", "decoder_input_ids"}
# Values that change nothing, besides None, False and 0, of all other options and arguments.
_NEUTRAL = {
    "cache_implementation": "dynamic",
    "encoder_repetition_penalty": 1,
    "guidance_scale": 1,
    "num_beam_groups": 1,
    "repetition_penalty": 1,
    "typical_p": 1,
}


@contextmanager
def prepare_search(
    model: Any,
    levels: Sequence[Mapping[str, Any]],
    ids: torch.Tensor | None,
    logits_processor: Sequence[Any] | None,
    stopping_criteria: Sequence[Any],
) -> Iterator[Callable | None]:
    """
    Prepare a model for one call of `generate()`.

    Args:
        levels: Keyword arguments of the call, options of its generation config and of the model's.
        ids (`torch.LongTensor` of shape `(batch_size, source_length)`): Source tokens, if they are given.
        logits_processor, stopping_criteria: Of the call, besides the library's own.

    Yields:
        The `custom_generate` of the call, or None if only the library can do what it requests.
    """
    can_search = follows(model, levels, logits_processor, stopping_criteria)
    with packed_weights(model, tokens=0 if ids is None else ids.numel()):
        yield partial(search, penalty_type=closest(levels, "length_penalty_type") or "power") if can_search else None


def follows(
    model: Any,
    levels: Sequence[Mapping[str, Any]],
    logits_processor: Sequence[Any] | None,
    stopping_criteria: Sequence[Any],
) -> bool:
    """Tell whether [`search`] does all that a call requests; see [`prepare_search`] for the arguments."""
    return (
        is_supported(model)
        and not unfollowed_options(levels, _FOLLOWED)
        and fits_positions(model.config, levels)
        and all(type(processor) in _KNOWN_PROCESSORS for processor in logits_processor or [])
        and all(type(criterion) in KNOWN_CRITERIA for criterion in stopping_criteria)
    )


def is_supported(model: Any) -> bool:
    """Tell whether [`IncrementalDecoder`] computes what the model's own decoder computes."""
    decoder = model.model.decoder
    if not all(type(layer) is VanillaTransformerDecoderLayer for layer in decoder.layers):
        return False
    attentions = [attention for layer in decoder.layers for attention in (layer.self_attn, layer.encoder_attn)]
    return (
        type(decoder) is VanillaTransformerDecoder
        and all(type(attention) is VanillaTransformerAttention for attention in attentions)
        and is_unchanged(model)
    )


def is_unchanged(model: Any) -> bool:
    """Tell whether nothing but the modules of a model decides what its decoder computes."""
    decoder = model.get_decoder()
    return (
        model.config._attn_implementation in ("eager", "sdpa")
        and not (model.training or model.config.output_attentions or model.config.output_hidden_states)
        and not any(map(_is_hooked, [model, model.model, *decoder.modules(), *model.lm_head.modules()]))
        and not hasattr(model, "hf_device_map")
        and not _decodes_in_step_with_others(model)
    )


def _is_hooked(module: Any) -> bool:
    """
    Tell whether anything runs around a module's `forward`, besides the library's own recording of outputs.

    The search here calls some modules of the decoder with other shapes, less often, or not at all.
    """
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    hooks += [*global_hooks._global_forward_hooks.values(), *global_hooks._global_forward_pre_hooks.values()]
    return "forward" in vars(module) or any(hook.__module__ != output_capturing.__name__ for hook in hooks)


def _decodes_in_step_with_others(model: Any) -> bool:
    """Tell whether all processes have to call a sharded model equally often."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    several = several and torch.distributed.get_world_size() > 1
    return several and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model))


def unfollowed_options(levels: Sequence[Mapping[str, Any]], followed: Set[str]) -> list[str]:
    """Return the names of options and arguments that ask for more than the followed ones, in order."""
    names = {name for level in levels for name in level if not name.startswith("_")} - followed
    values = {name: closest(levels, name) for name in names}
    unfollowed = [name for name, value in values.items() if not _is_neutral(name, value)]
    if closest(levels, "use_cache") is False:
        unfollowed.append("use_cache")
    if closest(levels, "eos_token_id") is None:
        unfollowed.append("eos_token_id")
    return sorted(unfollowed)


def _is_neutral(name: str, value: Any) -> bool:
    if value is None or value is False:
        return True
    return type(value) in (int, float, str) and value == _NEUTRAL.get(name, 0)


def fits_positions(config: Any, levels: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether no hypothesis can outgrow learned positions, of which the library warns."""
    if config.position_embedding_type != "learned":
        return True
    name, new = "decoder_input_ids" if config.is_encoder_decoder else "input_ids", closest(levels, "max_new_tokens")
    prompt = levels[0].get(name)
    if new is None:
        return (closest(levels, "max_length") or 0) <= config.max_position_embeddings
    return (1 if prompt is None else prompt.shape[1] + 1) + new <= config.max_position_embeddings


__all__ = [
    "PLAIN_OPTIONS",
    "SAMPLING_OPTIONS",
    "fits_positions",
    "follows",
    "is_supported",
    "is_unchanged",
    "prepare_search",
]
__all__ += ["unfollowed_options"]
