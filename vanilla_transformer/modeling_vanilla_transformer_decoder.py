# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Decoder-only Transformer, as in GPT: the base model and a causal language model.

Letters in shapes: B batch, L length, D d_model, V vocabulary.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationConfig
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .compatibility_vanilla_transformer import (
    CACHE,
    CompatibleGenerationMixin,
    accept_past_key_values,
    check_arguments,
)
from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
from .errors import UserError
from .generation_vanilla_transformer import check_rows, refuse_chunks
from .modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerDecoder,
    VanillaTransformerDecoderLayer,
    VanillaTransformerPreTrainedModel,
)


class VanillaTransformerDecoderModel(VanillaTransformerDecoder):
    """Decoder-only model without the output projection."""

    config_class = VanillaTransformerDecoderConfig
    _auto_class = "AutoModel"
    _supports_flash_attn = True
    _can_record_outputs = {
        "hidden_states": VanillaTransformerDecoderLayer,
        "attentions": VanillaTransformerAttention,
    }

    @merge_with_config_defaults
    @capture_outputs
    @accept_past_key_values
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """
        Compute the hidden states of a sequence, `(B, L, D)`.

        Args:
            input_ids: Tokens `(B, L)`; with a cache, only the ones that it does not hold.
            attention_mask: 1 for tokens, 0 for padding, `(B, past + L)`. Padding on the right needs
                no mask.
            cache: Keys and values of earlier steps, updated in place.
            inputs_embeds: Continuous inputs `(B, L, D)` instead of `input_ids`, not scaled by
                √d_model.
            position_ids: `(B, L)`, counted from the attention mask or the cache length by default.
        """
        check_arguments(self, kwargs)
        if use_cache and cache is None:
            cache = self.create_cache()
        hidden_states, attention_mask = self.prepare_inputs(
            "input", input_ids, inputs_embeds, attention_mask, position_ids, cache
        )
        hidden_states = self.run_layers(hidden_states, attention_mask, cache=cache, **kwargs)
        return BaseModelOutputWithPast(hidden_states, cache)

    def create_cache(self) -> Cache:
        """Create an empty cache of keys and values."""
        return DynamicCache()


class VanillaTransformerForCausalLM(VanillaTransformerPreTrainedModel, CompatibleGenerationMixin):
    """Causal language model: the decoder-only model with a projection to the vocabulary."""

    config_class = VanillaTransformerDecoderConfig
    model_class = VanillaTransformerDecoderModel
    _auto_class = "AutoModelForCausalLM"
    _supports_flash_attn = True
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["last_hidden_state"], ["logits"])}

    def __init__(self, config: VanillaTransformerDecoderConfig):
        super().__init__(config)
        # The library reads both from the name of the class: its loss, and that label smoothing
        # shifts the labels.
        self.loss_type, name = "ForCausalLM", type(self).__name__
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name] = name
        self.model = self.model_class(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    @accept_past_key_values
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """
        Compute logits `(B, L, V)` and, given labels, the loss in nats per token.

        Args:
            labels: Usually the `input_ids` `(B, L)`, with -100 for positions to ignore:
                `labels[:, t + 1]` is the target of `logits[:, t]`.
            shift_labels (keyword): The targets of `logits` at the same positions, beside `labels`.
                Trainers that split a sequence over processes shift the labels before.
            logits_to_keep: Compute only that many last logits, or these positions; 0 for all.
            num_items_in_batch (keyword): Labels of the whole step, which divide the sum of losses.
        """
        shift_labels = kwargs.pop("shift_labels", None)  # as a parameter, Trainer would wait for it
        use_cache = use_cache if labels is None else False
        outputs: BaseModelOutputWithPast = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])  # (B, L, D) -> (B, L, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, logits.shape[-1], shift_labels=shift_labels, **kwargs
            )
        cache = outputs.get(CACHE)
        return CausalLMOutputWithPast(
            loss, logits, cache, outputs.hidden_states, outputs.attentions
        )

    @accept_past_key_values
    @torch.no_grad()
    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """
        Continue a text; see `GenerationMixin.generate`. The rows of `cache` are repeated for beams.

        An EOS at the end of all prompts is not read, unless it is the only token: tokenizers append
        it, and `pipeline("text-generation")` passes it on, but the text is not over. The output
        begins with the given prompt.

        Raises:
            ValueError: `cache` already holds the whole text.
        """
        cache = kwargs.get("cache")
        if cache is not None:
            kwargs["cache"] = repeat_cache(self, cache, generation_config, kwargs)
        if inputs is not None:
            inputs, kwargs = None, kwargs | {"input_ids": inputs}
        prompt: Any = kwargs.get("input_ids")
        check_rows(prompt)
        embeds = kwargs.get("inputs_embeds")
        eos = generation_option(self, "eos_token_id", generation_config, kwargs)
        shortens = (cache is None or cache.get_seq_length() == 0) and ends_with(prompt, eos)
        shortens = shortens and (embeds is None or embeds.shape[:2] == prompt.shape)
        if shortens:
            names = ("input_ids", "inputs_embeds", "attention_mask", "position_ids")
            kwargs |= {name: kwargs[name][:, :-1] for name in names if kwargs.get(name) is not None}
            # These count the prompt, to which EOS is added again.
            lengths = {
                n: generation_option(self, n, generation_config, kwargs)
                for n in ("max_length", "min_length")
            }
            lengths = {name: length - 1 for name, length in lengths.items() if length}
            if generation_config is not None:  # keywords beside a config would log a warning
                generation_config = copy.deepcopy(generation_config)
                generation_config.update(**lengths)
            kwargs |= {
                n: length
                for n, length in lengths.items()
                if generation_config is None or kwargs.get(n)
            }
        levels = [
            kwargs,
            vars(generation_config) if generation_config else {},
            vars(self.generation_config),
        ]
        refuse_chunks(levels)
        outputs = super().generate(inputs, generation_config, *args, **kwargs)
        return insert_prompt(outputs, prompt) if shortens else outputs

    @accept_past_key_values
    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        *args: Any,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        is_first_iteration: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Prepare the model inputs of a step of `generate()`, unless `cache` already holds the
        whole text.
        """
        kwargs.pop("tokenizer", None)  # of `stop_strings`, which the library passes on
        past = cache.get_seq_length() if cache is not None else 0
        if is_first_iteration and inputs_embeds is None and 0 < input_ids.shape[1] <= past:
            raise UserError(
                "`input_ids` must be the whole text: the tokens that `cache` holds and at least "
                f"one more. Got {input_ids.shape[1]} tokens, but the cache holds {past}. Pass the "
                "whole text."
            )
        kwargs |= {
            CACHE: cache,
            "inputs_embeds": inputs_embeds,
            "is_first_iteration": is_first_iteration,
        }
        return super().prepare_inputs_for_generation(input_ids, *args, **kwargs)


def ends_with(prompt: Tensor | None, eos_token_id: int | list[int] | None) -> bool:
    """Tell whether all rows of `prompt` `(B, L)` end with EOS after at least one other token."""
    if prompt is None or eos_token_id is None or prompt.shape[1] < 2:
        return False
    return bool(
        torch.isin(prompt[:, -1], torch.as_tensor(eos_token_id, device=prompt.device)).all()
    )


def insert_prompt(outputs: Any, prompt: Tensor) -> Any:
    """Return the output of `generate()` for a prompt without its last token with the whole `prompt`
    `(B, L)`.
    """
    sequences = getattr(outputs, "sequences", outputs)
    if not isinstance(sequences, Tensor):  # a `custom_generate` returns what it likes
        return outputs
    prompts = prompt.repeat_interleave(len(sequences) // len(prompt), dim=0)
    sequences = torch.cat([prompts, sequences[:, prompt.shape[1] - 1 :]], dim=1)
    if not isinstance(outputs, ModelOutput):
        return sequences
    outputs.sequences = sequences
    return outputs


def generation_option(
    model: Any, name: str, generation_config: GenerationConfig | None, kwargs: dict[str, Any]
) -> Any:
    """Look up a parameter of `generate()` in its keyword arguments, the given config and the
    model's own config.
    """
    levels = (
        kwargs.get(name),
        getattr(generation_config, name, None),
        getattr(model.generation_config, name, None),
    )
    return next((value for value in levels if value is not None), None)


def repeat_cache(
    model: Any, cache: Cache, generation_config: GenerationConfig | None, kwargs: dict[str, Any]
) -> Cache:
    """Return the cache, or a copy with rows repeated if `generate()` uses several beams or returned
    sequences.
    """
    options = (
        generation_option(model, n, generation_config, kwargs)
        for n in ("num_beams", "num_return_sequences")
    )
    repeats = max(option or 1 for option in options)
    if repeats > 1:
        cache = copy_cache(cache)
        cache.batch_repeat_interleave(repeats)
    return cache


def copy_cache(cache: Cache) -> Cache:
    """Copy a cache but share its tensors, since its layers replace tensors instead of writing into
    them.
    """
    cache = copy.copy(cache)
    cache.layers = [copy.copy(layer) for layer in cache.layers]
    return cache


__all__ = ["VanillaTransformerDecoderModel", "VanillaTransformerForCausalLM"]
