"""The decoding engine as the `custom_generate` of `generate()`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, MaxLengthCriteria
from transformers.generation import EosTokenCriteria, logits_process

from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.errors import UserError
from vanilla_transformer.generation_vanilla_transformer import (
    MaxNewTokensBeyondSource,
    penalty_type_of_call,
)

from .known_features import ForbiddenTokens, NoRepeatedNgrams, search_options
from .requests import DecodeRequest
from .search_options import SearchOptions
from .target_prefix import ForcedToken

if TYPE_CHECKING:
    from .engine import Engine


def generate_by_engine(
    engine: "Engine",
    input_ids: Tensor,
    logits_processor: Sequence[Any],
    stopping_criteria: Sequence[Any],
    generation_config: GenerationConfig,
    model_kwargs: Mapping[str, Any],
) -> Tensor:
    """
    Decode what `generate()` has prepared, and return token ids
    `(B * num_return_sequences, length)`.

    Args:
        input_ids: Prompts, or the start symbol of each translation, once for each beam.
        model_kwargs: The encoder's outputs and masks, among others.

    Raises:
        ValueError: The call asks for another search than the engine's.
    """
    _check_search(
        engine, generation_config, logits_processor, stopping_criteria, input_ids.shape[1]
    )
    count = generation_config.num_return_sequences or 1
    repeats = max(generation_config.num_beams or 1, count)  # of each row
    prompts, mask = input_ids[::repeats], model_kwargs.get("attention_mask")
    mask = None if mask is None else mask[::repeats].bool()
    longest = torch.full((len(prompts),), torch.iinfo(torch.long).max)
    for criterion in stopping_criteria:
        if isinstance(criterion, MaxNewTokensBeyondSource):
            longest = torch.minimum(longest, criterion.max_lengths.cpu())
        elif isinstance(criterion, MaxLengthCriteria):
            longest = longest.clamp(max=criterion.max_length)
    limits, config = longest - prompts.shape[1], engine.model.config
    if config.position_embedding_type == "learned":
        most = config.max_position_embeddings
        is_too_long = int(longest.max()) > most
        _refuse_if(is_too_long, f"texts that are longer than the model's {most} positions")
    sources: Iterable[Any]
    if config.is_encoder_decoder:
        _refuse_if(prompts.shape[1] > 1, "`decoder_input_ids`")
        sources = model_kwargs["encoder_outputs"][0][::repeats].to(engine.model.dtype)
        if mask is not None:
            # Attention needs a position to see, also in a source of nothing but an unseen EOS.
            sources = (
                states[seen] if seen.any() else states[:1]
                for states, seen in zip(sources, mask, strict=True)
            )
    else:
        sources = _read_prompts(prompts, mask, repeats, model_kwargs)
    requests = []
    for source, limit in zip(sources, limits.tolist(), strict=True):
        requests.append(DecodeRequest(source, limit=limit))
    results = engine.decode(requests, count)
    pad, eos = generation_config.pad_token_id, engine.options.eos_token_ids[0]
    # In its beam search for prompts, the library takes 0 for no padding.
    is_beam_search_of_prompts = repeats > 1 and not config.is_encoder_decoder
    if pad is None or (pad == 0 and is_beam_search_of_prompts):
        pad = eos
    rows = []
    for hypotheses in results:
        rows += [torch.tensor(hypothesis.tokens) for hypothesis in hypotheses]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    repeated_prompts = prompts.repeat_interleave(count, dim=0)
    return torch.cat([repeated_prompts, tokens.to(prompts.device)], dim=1)


def _check_search(
    engine: "Engine",
    config: GenerationConfig,
    logits_processor: Sequence[Any],
    stopping_criteria: Sequence[Any],
    prompt_length: int,
) -> None:
    """Check that a call asks for the engine's search."""
    penalty_type = penalty_type_of_call.get()
    call = vars(config) | {"length_penalty_type": penalty_type, "max_new_tokens": 1}
    options, ours = TranslationOptions.from_levels([{}, call]), engine.options
    asked = search_options(engine.model, options)
    for field in fields(SearchOptions):
        value, engine_value = getattr(asked, field.name), getattr(ours, field.name)
        if value != engine_value:
            requirement = "The engine of `custom_generate` must have the options of the call"
            option = f"`{field.name}` {value!r}"
            raise UserError(f"{requirement}: {option}, got {engine_value!r}.")
    known = set[type]()
    if config.renormalize_logits:
        known.add(logits_process.LogitNormalization)
    if ours.min_new_tokens:
        known.add(logits_process.MinNewTokensLengthLogitsProcessor)
    if ours.sampling is not None:
        known.add(logits_process.TopPLogitsWarper)
        known.update(map(type, ours.sampling.filters()))
    of_features: dict[type, tuple[type, ...]] = {
        NoRepeatedNgrams: (logits_process.NoRepeatNGramLogitsProcessor,),
        ForcedToken: (
            logits_process.ForcedBOSTokenLogitsProcessor,
            logits_process.ForcedEOSTokenLogitsProcessor,
        ),
        ForbiddenTokens: (
            logits_process.NoBadWordsLogitsProcessor,
            logits_process.SuppressTokensLogitsProcessor,
        ),
    }
    for feature in ours.features:
        known.update(of_features.get(type(feature), ()))
    for processor in logits_processor:
        # The library adds one for the new tokens, too, which forbids nothing more.
        is_minimum = isinstance(processor, logits_process.MinLengthLogitsProcessor)
        if not is_minimum or processor.min_length > prompt_length + ours.min_new_tokens:
            _refuse_if(type(processor) not in known, f"`{type(processor).__name__}`")
    for criterion in stopping_criteria:
        if isinstance(criterion, EosTokenCriteria):
            other_eos = {*criterion.eos_token_id.flatten().tolist()} != {*ours.eos_token_ids}
            _refuse_if(other_eos, "other tokens that end a text")
        else:
            is_limit = isinstance(criterion, MaxLengthCriteria | MaxNewTokensBeyondSource)
            _refuse_if(not is_limit, f"`{type(criterion).__name__}`")
    _refuse_if(bool(config.return_dict_in_generate), "`return_dict_in_generate`")


def _read_prompts(
    prompts: Tensor, mask: Tensor | None, repeats: int, inputs: Mapping[str, Any]
) -> list[list[int]]:
    """Return the tokens of prompts `(B, L)`, which may be padded on the left."""
    cache, positions = inputs.get(CACHE), inputs.get("position_ids")
    _refuse_if(inputs.get("inputs_embeds") is not None, "`inputs_embeds`")
    _refuse_if(cache is not None and cache.get_seq_length() > 0, "a `cache` that is not empty")
    seen = torch.ones_like(prompts, dtype=torch.bool) if mask is None else mask
    lengths = seen.sum(dim=1, keepdim=True)
    # Padding has negative positions.
    places = torch.arange(prompts.shape[1], device=prompts.device) - (prompts.shape[1] - lengths)
    is_at_left = torch.equal(seen, places >= 0) and bool(lengths.all())
    _refuse_if(not is_at_left, "padding that is not on the left")
    others = positions is not None and (positions[::repeats] != places)[seen].any()
    _refuse_if(bool(others), "other `position_ids`")
    tokens = []
    for row, length in zip(prompts.tolist(), lengths[:, 0].tolist(), strict=True):
        tokens.append(row[-length:])
    return tokens


def _refuse_if(condition: bool, what: str) -> None:
    if condition:
        raise UserError(
            f"The engine of `custom_generate` does without {what}. Leave one of them out."
        )
