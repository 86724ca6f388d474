# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configuration of the Transformer of "Attention Is All You Need" (Vaswani et al., 2017), called "the paper" here."""

import copy
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig


def _attention_plan(attention: str) -> dict[str, str]:
    """Tensor-parallel plan of one attention: heads are split over the devices, their outputs summed."""
    return {
        **{f"{attention}.{projection}": "colwise" for projection in ("q_proj", "k_proj", "v_proj")},
        f"{attention}.out_proj": "rowwise",
    }


def _stack_plan(stack: str, *attentions: str) -> dict[str, str]:
    """Tensor-parallel plan of one stack of layers (encoder or decoder)."""
    plan = {f"{stack}.embed_tokens": "embedding_rowwise"}
    for attention in attentions:
        plan |= _attention_plan(f"{stack}.layers.*.{attention}")
    return plan | {f"{stack}.layers.*.fc1": "colwise", f"{stack}.layers.*.fc2": "rowwise"}


@strict
class VanillaTransformerConfig(PreTrainedConfig):
    """
    Shape and regularisation of a [`VanillaTransformerModel`]; the defaults are the paper's base model.

    `VanillaTransformerConfig(d_model=1024, encoder_ffn_dim=4096, decoder_ffn_dim=4096, encoder_attention_heads=16,
    decoder_attention_heads=16, dropout=0.3)` is its big model (table 3, last row).

    Args:
        vocab_size (`int`, defaults to 37000):
            Entries of the source vocabulary, which is the target's too unless `share_encoder_decoder_embeddings` is
            off. Section 5.1: a joint byte-pair vocabulary of about 37,000 tokens.
        decoder_vocab_size (`int`, *optional*):
            Entries of the target vocabulary; the same as `vocab_size` by default, and always while both are shared.
        share_encoder_decoder_embeddings (`bool`, defaults to `True`):
            Source and target use one vocabulary and one embedding matrix (section 3.4).
        tie_word_embeddings (`bool`, defaults to `True`):
            The output projection is the transposed target embedding (section 3.4). Together with
            `share_encoder_decoder_embeddings` that ties three matrices; `False` unties all of them.
        d_model (`int`, defaults to 512): Width of the residual stream (section 3.1). Must be even for sinusoids.
        encoder_layers, decoder_layers (`int`, default to 6): N of section 3.1.
        encoder_attention_heads, decoder_attention_heads (`int`, default to 8):
            h of section 3.2.2; each head is `d_model / h` wide.
        encoder_ffn_dim, decoder_ffn_dim (`int`, default to 2048): d_ff of section 3.3.
        activation_function (`str`, defaults to `"relu"`): Between the two projections of section 3.3, equation 2.
        dropout (`float`, defaults to 0.1):
            On the output of every sub-layer and on the sums of embeddings and positions (section 5.4).
        attention_dropout (`float`, defaults to 0.0): On attention probabilities. Not in the paper.
        activation_dropout (`float`, defaults to 0.0):
            After the activation of the feed-forward layer. Not in the paper.
        attention_bias (`bool`, defaults to `False`):
            Biases in the four attention projections; section 3.2.2 has plain matrices.
        lm_head_bias (`bool`, defaults to `False`): A bias on the logits, as in Marian. Not in the paper.
        normalize_before (`bool`, defaults to `False`):
            `False`: `LayerNorm(x + Sublayer(x))`, section 3.1. `True`: `x + Sublayer(LayerNorm(x))` and one more
            normalisation after each stack (pre-norm). Not in the paper.
        layer_norm_eps (`float`, defaults to 1e-6):
            The paper gives none; this is the value of its own code, Tensor2Tensor (`layer_norm(..., epsilon=1e-6)`).
        scale_embedding (`bool`, defaults to `True`): Multiply embeddings by √d_model (section 3.4).
        position_embedding_type (`str`, defaults to `"sinusoidal"`):
            `"sinusoidal"` (section 3.5) has no longest position; `"learned"` (table 3, row E) has
            `max_position_embeddings` of them.
        sinusoid_layout (`str`, defaults to `"interleaved"`):
            `"interleaved"`: sine in even, cosine in odd features, as section 3.5 has it. `"halves"`: all sines, then
            all cosines, as in Marian.
        max_position_embeddings (`int`, defaults to 1024):
            Rows of learned positions. Sinusoids have no limit and ignore it.
        max_source_length (`int`, *optional*):
            Longest source, in tokens with EOS, that the weights were trained on. `TranslationPipeline` splits a line
            beyond it into sentences. The training scripts write it.
        source_eos (`bool`, defaults to `True`):
            The EOS of a source is seen. `False` masks it like padding, for models of toolkits such as OpenNMT, whose
            sources have none.
        init_std (`float`, *optional*):
            Standard deviation of all initial weights. By default projections start Glorot-uniform and embeddings
            with `d_model ** -0.5`, so that scaled embeddings and tied logits both start at unit scale. The paper gives
            no initialisation; this is Tensor2Tensor's.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id (`int`, default to 0, 1, 2, 1):
            Special tokens. The decoder's input starts with `decoder_start_token_id` (section 3.1: outputs are shifted
            right by one position).

    Raises:
        ValueError: a value is impossible by itself or beside another one; the text names the field, the value and
            the rule. A value of a wrong type is refused by `huggingface_hub`'s `StrictDataclassFieldValidationError`.
    """

    model_type = "vanilla_transformer"
    # Where transformers finds the code that travels with a checkpoint, for those who do not have this package.
    travelling_code = dict[str, Any](
        auto_map={
            "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
            "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
            "AutoModelForSeq2SeqLM": "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration",
        },
        custom_pipelines={
            "translation": {
                "impl": "pipeline_vanilla_transformer.TranslationPipeline",
                "pt": ["AutoModelForSeq2SeqLM"],
            },
        },
    )
    _auto_class = "AutoConfig"  # saved models bring their code along, and load where this package is not installed
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    base_model_tp_plan = _stack_plan("encoder", "self_attn") | _stack_plan("decoder", "self_attn", "encoder_attn")
    base_model_pp_plan = {
        "encoder": (["input_ids", "attention_mask"], ["encoder_hidden_states"]),
        "decoder": (["decoder_input_ids", "encoder_hidden_states", "attention_mask"], ["last_hidden_state"]),
    }
    base_model_fsdp_plan = {
        "encoder.layers.*": "free_full_weight",
        "decoder.layers.*": "free_full_weight",
    }

    vocab_size: int = 37000
    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    attention_bias: bool = False
    lm_head_bias: bool = False
    normalize_before: bool = False
    layer_norm_eps: float = 1e-6
    scale_embedding: bool = True
    position_embedding_type: Literal["sinusoidal", "learned"] = "sinusoidal"
    sinusoid_layout: Literal["interleaved", "halves"] = "interleaved"
    max_position_embeddings: int = 1024
    max_source_length: int | None = None
    source_eos: bool = True
    init_std: float | None = None
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        # Where this package is installed its own code is used. The library would ask for `trust_remote_code` all the
        # same if it saw that the checkpoint brings some along.
        if not type(self).__module__.startswith("transformers_modules."):
            for key in VanillaTransformerConfig.travelling_code:
                kwargs.pop(key, None)
        super().__post_init__(**kwargs)
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        self.validate_architecture()
        self.validate_token_ids()

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them, and where the code is that travels with a checkpoint."""
        return super().to_dict() | copy.deepcopy(self.travelling_code)

    def validate_architecture(self) -> None:
        """Checks every rule between fields; run at construction and, since fields can be changed, before saving."""
        self._check_sizes()
        self._check_probabilities()
        self._check_combinations()

    def validate_token_ids(self) -> None:
        """Special tokens are rows of the embedding: one outside it would fail deep inside the model."""
        target_entries = self.decoder_vocab_size or self.vocab_size
        for field in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(self, field)
            # Only padding is looked up on both sides by the model itself.
            entries = min(self.vocab_size, target_entries) if field == "pad_token_id" else target_entries
            for token_id in value if isinstance(value, list) else [value]:
                if token_id is not None and not 0 <= token_id < entries:
                    raise ValueError(f"`{field}` must lie in the vocabulary of {entries} entries, got {token_id}.")

    def _check_sizes(self) -> None:
        positive = ["vocab_size", "decoder_vocab_size", "d_model", "encoder_layers", "decoder_layers"]
        positive += ["encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim"]
        positive += ["max_position_embeddings", "max_source_length"]
        for field in positive:
            if getattr(self, field) is not None and getattr(self, field) < 1:
                raise ValueError(f"`{field}` must be at least 1, got {getattr(self, field)}.")
        for field in ("encoder_attention_heads", "decoder_attention_heads"):
            if self.d_model % getattr(self, field):
                raise ValueError(
                    f"`d_model` must be a multiple of `{field}`, got d_model={self.d_model} and "
                    f"{field}={getattr(self, field)}."
                )

    def _check_probabilities(self) -> None:
        for field in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, field) < 1.0:
                raise ValueError(f"`{field}` must be a probability in [0, 1), got {getattr(self, field)}.")
        for field in ("layer_norm_eps", "init_std"):
            value = getattr(self, field)
            if value is not None and not value > 0.0:
                raise ValueError(f"`{field}` must be greater than 0, got {value}.")

    def _check_combinations(self) -> None:
        from transformers.activations import ACT2FN

        if self.activation_function not in ACT2FN:
            raise ValueError(
                f"`activation_function` must be one of {', '.join(sorted(ACT2FN))}, got {self.activation_function!r}."
            )
        if self.position_embedding_type == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"`d_model` must be even for sinusoidal positions, got {self.d_model}.")
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size != self.vocab_size:
            raise ValueError(
                f"`decoder_vocab_size` must equal `vocab_size`={self.vocab_size} while "
                f"`share_encoder_decoder_embeddings` is on, got {self.decoder_vocab_size}. Switch that off for "
                "separate vocabularies."
            )


__all__ = ["VanillaTransformerConfig"]
