# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Encoder-only Transformer, as in BERT: the base model, a masked language model and a sequence
classifier.

Letters in shapes: B batch, L length, D d_model, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
from .generation_vanilla_transformer import source_mask
from .modeling_vanilla_transformer import (
    VanillaTransformerEncoder,
    VanillaTransformerPreTrainedModel,
)


class VanillaTransformerEncoderModel(VanillaTransformerEncoder):
    """Encoder-only model without a head."""

    config_class = VanillaTransformerEncoderConfig
    _auto_class = "AutoModel"
    _supports_flash_attn = True


class VanillaTransformerForMaskedLM(VanillaTransformerPreTrainedModel):
    """Masked language model: the encoder-only model with a projection to the vocabulary."""

    config_class = VanillaTransformerEncoderConfig
    _auto_class = "AutoModelForMaskedLM"
    _supports_flash_attn = True
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: VanillaTransformerEncoderConfig):
        super().__init__(config)
        self.loss_type = "ForMaskedLM"  # the library reads it from the name of the class
        self.model = VanillaTransformerEncoderModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """
        Compute logits `(B, L, V)` and, given labels, the loss in nats per label.

        `labels`, `(B, L)`, are the original tokens at masked positions and -100 elsewhere.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)  # (B, L, D) -> (B, L, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, logits.shape[-1], **kwargs)
        return MaskedLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class VanillaTransformerForSequenceClassification(VanillaTransformerPreTrainedModel):
    """Encoder-only model with a classification or regression head, which projects the mean over the
    tokens.
    """

    config_class = VanillaTransformerEncoderConfig
    _auto_class = "AutoModelForSequenceClassification"
    _supports_flash_attn = True

    def __init__(self, config: VanillaTransformerEncoderConfig):
        super().__init__(config)
        self.loss_type, self.num_labels = "ForSequenceClassification", config.num_labels
        self.model = VanillaTransformerEncoderModel(config)
        self.score = nn.Linear(config.d_model, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """
        Compute logits `(B, num_labels)` and, given labels, the loss.

        `labels` are class indices `(B,)`, or target values if `config.num_labels` is 1 or
        `config.problem_type` is `"regression"`.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        states = outputs.last_hidden_state  # (B, L, D)
        mask = source_mask(self.config, input_ids, attention_mask)
        weights = states.new_ones(states.shape[:2]) if mask is None else mask.to(states.dtype)
        mean = (states * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(
            min=1.0
        )  # (B, D)
        logits = self.score(mean)  # (B, D) -> (B, num_labels)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                labels=labels, pooled_logits=logits, config=self.config, **kwargs
            )
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = [
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForMaskedLM",
    "VanillaTransformerForSequenceClassification",
]
