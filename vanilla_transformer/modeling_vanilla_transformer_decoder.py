# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
The Transformer's two halves by themselves, of the very same layers: the decoder alone, which continues a text (as in
GPT), and the encoder alone, which reads one (as in BERT).

Letters in shapes: B batch, L length, D d_model, V vocabulary.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationConfig, GenerationMixin
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    SequenceClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_vanilla_transformer_decoder import (
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
)
from .generation_vanilla_transformer import source_mask
from .linear_vanilla_transformer import VanillaTransformerLinear
from .modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerEncoder,
    VanillaTransformerLayer,
    VanillaTransformerPreTrainedModel,
    VanillaTransformerStack,
    check_ids,
)


class VanillaTransformerFamilyModel(VanillaTransformerPreTrainedModel):
    """What the models of one stack share. It has one vocabulary, and its embeddings are `embed_tokens`."""

    _no_split_modules = ["VanillaTransformerEncoderLayer", "VanillaTransformerContinuingLayer"]

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        embeddings = PreTrainedModel._resize_token_embeddings(self, *args, **kwargs)
        self.config.decoder_vocab_size = embeddings.num_embeddings
        return embeddings

    def init_parallel_plans(self) -> None:
        """Those of the configuration, which name modules of one stack."""
        PreTrainedModel.init_parallel_plans(self)


class VanillaTransformerContinuingLayer(VanillaTransformerLayer):
    """A decoder layer that has no source: masked self-attention, then feed-forward."""

    def __init__(self, config: VanillaTransformerDecoderConfig, layer_idx: int):
        super().__init__(config, config.decoder_ffn_dim)
        self.self_attn = VanillaTransformerAttention(config, config.decoder_attention_heads, layer_idx, is_causal=True)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        def attend_to_past(states: torch.Tensor) -> torch.Tensor:
            return self.self_attn(states, attention_mask, past_key_values=past_key_values, **kwargs)[0]

        hidden_states = self.add_and_norm(hidden_states, self.self_attn_layer_norm, attend_to_past)
        return self.add_and_norm(hidden_states, self.final_layer_norm, self.feed_forward)


class VanillaTransformerDecoderModel(VanillaTransformerFamilyModel, VanillaTransformerStack):
    """The decoder alone, without the output projection."""

    config_class = VanillaTransformerDecoderConfig
    create_mask = staticmethod(create_causal_mask)
    layer_class = VanillaTransformerContinuingLayer
    _auto_class = "AutoModel"
    _can_record_outputs = {
        "hidden_states": VanillaTransformerContinuingLayer,
        "attentions": VanillaTransformerAttention,
    }

    def __init__(self, config: VanillaTransformerDecoderConfig):
        super().__init__(config, config.vocab_size)
        self.layers = nn.ModuleList(self.layer_class(config, layer_idx) for layer_idx in range(config.decoder_layers))
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`):
                Tokens; with a cache, only those that it has not seen.
            attention_mask (`torch.Tensor` of shape `(batch_size, past_length + length)`):
                1 for tokens, 0 for padding. Padding on the right needs none, since no earlier position sees it.
            past_key_values (`Cache`): Keys and values of earlier steps. Changed in place.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, length, d_model)`):
                Continuous inputs in place of `input_ids`. They are not scaled by √d_model.
            position_ids (`torch.LongTensor` of shape `(batch_size, length)`):
                By default counted from the attention mask, or from the cache's length.

        Raises:
            ValueError: ids outside the vocabulary, or both or neither of ids and embeddings.
        """
        if use_cache and past_key_values is None:
            past_key_values = self.new_cache()
        hidden_states, attention_mask = self.enter(
            "input", input_ids, inputs_embeds, attention_mask, position_ids, past_key_values
        )
        hidden_states = self.run_layers(hidden_states, attention_mask, past_key_values, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=hidden_states, past_key_values=past_key_values)

    def new_cache(self) -> Cache:
        """An empty cache."""
        return DynamicCache()

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """All layers over embedded tokens with positions, `(B, L, D)`, with a mask as the attention takes it."""
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask, past_key_values=past_key_values, **kwargs)
        return self.final_norm(hidden_states)


class VanillaTransformerForCausalLM(VanillaTransformerFamilyModel, GenerationMixin):
    """The decoder alone with the projection to the vocabulary: each position gives the token behind it."""

    config_class = VanillaTransformerDecoderConfig
    model_class = VanillaTransformerDecoderModel
    _auto_class = "AutoModelForCausalLM"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["last_hidden_state"], ["logits"])}

    def __init__(self, config: VanillaTransformerDecoderConfig):
        super().__init__(config)
        self.model = self.model_class(config)
        self.lm_head = VanillaTransformerLinear(config.d_model, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """
        Takes what [`VanillaTransformerDecoderModel.forward`] takes, and:

        Args:
            labels (`torch.LongTensor` of shape `(batch_size, length)`):
                `input_ids` once more, -100 where there is no label. They are shifted here: `labels[:, t + 1]` is what
                `logits[:, t]` should be.
            logits_to_keep (`int` or `torch.Tensor`):
                Compute only that many last logits (or those positions); 0 for all.
            num_items_in_batch (`int` or `torch.Tensor`, among the keyword arguments):
                Labels of the whole step, by which the summed loss is divided then.

        Returns:
            `CausalLMOutputWithPast` with `logits` of shape `(batch_size, length, vocab_size)` and, where labels are
            given, `loss` in nats a token.

        Raises:
            ValueError: ids or labels outside the vocabulary, or both or neither of ids and embeddings.
        """
        if labels is not None:
            check_ids("labels", labels, self.lm_head.out_features, ignored=-100)
            use_cache = False
        outputs: BaseModelOutputWithPast = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])  # (B, L, D) -> (B, L, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, logits.shape[-1], **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        *args: Any,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        is_first_iteration: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """
        What `forward` gets at a step of `generate()`: the tokens that the cache does not have.

        Raises:
            ValueError: the cache has all of them, or more.
        """
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if is_first_iteration and inputs_embeds is None and 0 < input_ids.shape[1] <= past:
            raise ValueError(
                "`input_ids` must be the whole text, what `past_key_values` has read and at least one token more: got "
                f"{input_ids.shape[1]} tokens, of which the cache has read {past}. Give all of the text."
            )
        return super().prepare_inputs_for_generation(
            input_ids,
            *args,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            is_first_iteration=is_first_iteration,
            **kwargs,
        )

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        if model_kwargs.get("past_key_values") is not None:
            model_kwargs["past_key_values"] = for_copies(model_kwargs["past_key_values"], generation_config)
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)


def for_copies(cache: Cache, generation_config: GenerationConfig) -> Cache:
    """The cache itself or, where beams or several answers make copies of each row, another with as many rows."""
    copies = max(generation_config.num_beams, generation_config.num_return_sequences)
    if copies > 1:
        cache = copied(cache)
        cache.batch_repeat_interleave(copies)
    return cache


def copied(cache: Cache) -> Cache:
    """A cache with the same tensors, of which its layers put others in their places and write into none."""
    cache = copy.copy(cache)
    cache.layers = [copy.copy(layer) for layer in cache.layers]
    return cache


class VanillaTransformerEncoderModel(VanillaTransformerFamilyModel, VanillaTransformerEncoder):
    """The encoder alone."""

    config_class = VanillaTransformerEncoderConfig
    _auto_class = "AutoModel"


class VanillaTransformerForMaskedLM(VanillaTransformerFamilyModel):
    """The encoder alone with the projection to the vocabulary: each position gives the token that belongs there."""

    config_class = VanillaTransformerEncoderConfig
    _auto_class = "AutoModelForMaskedLM"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: VanillaTransformerEncoderConfig):
        super().__init__(config)
        self.model = VanillaTransformerEncoderModel(config)
        self.lm_head = VanillaTransformerLinear(config.d_model, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """
        Takes what [`VanillaTransformerEncoder.forward`] takes, and:

        Args:
            labels (`torch.LongTensor` of shape `(batch_size, length)`):
                What stood where tokens are masked, -100 elsewhere. They are not shifted.

        Returns:
            `MaskedLMOutput` with `logits` of shape `(batch_size, length, vocab_size)` and, where labels are given,
            `loss` in nats a label.

        Raises:
            ValueError: ids or labels outside the vocabulary, or both or neither of ids and embeddings.
        """
        if labels is not None:
            check_ids("labels", labels, self.lm_head.out_features, ignored=-100)
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        logits = self.lm_head(outputs.last_hidden_state)  # (B, L, D) -> (B, L, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, logits.shape[-1], **kwargs)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class VanillaTransformerForSequenceClassification(VanillaTransformerFamilyModel):
    """The encoder alone with a class, or a number, for each sequence: a projection of the mean over its tokens."""

    config_class = VanillaTransformerEncoderConfig
    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: VanillaTransformerEncoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = VanillaTransformerEncoderModel(config)
        self.score = nn.Linear(config.d_model, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """
        Takes what [`VanillaTransformerEncoder.forward`] takes, and:

        Args:
            labels (`torch.Tensor` of shape `(batch_size,)` or `(batch_size, num_labels)`):
                Classes, or numbers where `config.num_labels` is 1 or `config.problem_type` says so.

        Returns:
            `SequenceClassifierOutput` with `logits` of shape `(batch_size, num_labels)` and, where labels are given,
            `loss`.

        Raises:
            ValueError: ids outside the vocabulary, or both or neither of ids and embeddings.
        """
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        states = outputs.last_hidden_state
        mask = source_mask(self.config, input_ids, attention_mask)
        weights = states.new_ones(states.shape[:2]) if mask is None else mask.to(states.dtype)
        mean = (states * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(min=1.0)
        logits = self.score(mean)  # (B, D) -> (B, num_labels)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


__all__ = [
    "VanillaTransformerDecoderModel",
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForCausalLM",
    "VanillaTransformerForMaskedLM",
    "VanillaTransformerForSequenceClassification",
]
