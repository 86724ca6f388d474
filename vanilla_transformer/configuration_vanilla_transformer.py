# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configuration of the Transformer of "Attention Is All You Need" (Vaswani et al., 2017), called
"the paper" below.
"""

import copy
import shutil
from collections.abc import Callable
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from transformers.utils.versions import require_version

from .errors import UserError

try:
    require_version("transformers>=5.12")  # before the imports that fail in older releases
except ImportError as error:
    raise UserError(
        f"{str(error).strip()} Install one of the releases: transformers>=5.12,<6."
    ) from error

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.dynamic_module_utils import HF_MODULES_CACHE, get_cached_module_file

SIDES = ("encoder_", "decoder_")
PIPELINE = "pipeline_vanilla_transformer.TranslationPipeline"


def stack_plan(stack: str, *attentions: str) -> dict[str, str]:
    """Build the tensor-parallel plan of the modules below `stack`: heads and feed-forward width are
    split.
    """
    plan = {f"{stack}embed_tokens": "embedding_rowwise"}
    for attention in attentions:
        plan |= {f"{stack}layers.*.{attention}.{name}_proj": "colwise" for name in "qkv"}
        plan[f"{stack}layers.*.{attention}.out_proj"] = "rowwise"
    return plan | {f"{stack}layers.*.fc1": "colwise", f"{stack}layers.*.fc2": "rowwise"}


@strict
class VanillaTransformerBaseConfig(PreTrainedConfig):
    """Fields and rules of all models; [`VanillaTransformerConfig`] documents them."""

    _auto_class = "AutoConfig"  # saved models carry their code, and load without this package
    # Where transformers finds the carried code: `auto_map` and `custom_pipelines`
    remote_code = dict[str, Any]()
    keys_to_ignore_at_inference = ["cache", "past_key_values"]

    vocab_size: int = 37000
    tie_word_embeddings: bool = True
    d_model: int = 512
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    attention_bias: bool = False
    attention_key_dim: int | None = None
    attention_value_dim: int | None = None
    lm_head_bias: bool = False
    normalize_before: bool = False
    layer_norm_eps: float = 1e-6
    scale_embedding: bool = True
    position_embedding_type: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    sinusoid_layout: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    max_position_embeddings: int = 1024
    init_std: float | None = None
    chunk_size_feed_forward: int = 0
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        # An installed package uses its own code. The library would ask for `trust_remote_code`
        # nevertheless if it saw that the checkpoint carries some.
        if not type(self).__module__.startswith("transformers_modules."):
            kwargs = {
                name: value
                for name, value in kwargs.items()
                if name not in ("auto_map", "custom_pipelines")
            }
        super().__post_init__(**kwargs)
        self.validate_sizes()
        self.validate_architecture()
        self.validate_token_ids()

    def to_dict(self) -> dict[str, Any]:
        """
        Return the fields as JSON types, and where transformers finds the carried code.

        A class of a user carries its own file, which the library has named in `auto_map`.
        """
        fields = super().to_dict()
        carried = {*self.remote_code.get("auto_map", {}).values()}
        carried_classes = {path.rpartition(".")[2] for path in carried}
        auto_map = fields.get("auto_map") or {}
        foreign = {path.rpartition("--")[2] for path in auto_map.values()} - carried
        foreign |= {*(fields.get("architectures") or ())} - carried_classes
        return fields if foreign else fields | copy.deepcopy(self.remote_code)

    def validate_token_ids(self) -> None:
        """Check that special tokens are rows of the embedding: others would fail deep inside the
        model.
        """
        target_entries = getattr(self, "decoder_vocab_size", None) or self.vocab_size
        for field in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(self, field, None)
            # Only padding is embedded on both sides.
            entries = target_entries
            if field == "pad_token_id":
                entries = min(self.vocab_size, target_entries)
            for token_id in value if isinstance(value, list) else [value]:
                if token_id is not None and not 0 <= token_id < entries:
                    raise UserError(
                        f"`{field}` must be in the vocabulary of {entries} entries, got {token_id}."
                    )

    def check(self, field: str, requirement: str, holds: Callable[[Any], bool]) -> None:
        """Check that a field, if it exists and is not None, follows a rule."""
        value = getattr(self, field, None)
        if value is not None and not holds(value):
            raise UserError(f"`{field}` must {requirement}, got {value!r}.")

    def head_dims(self, num_heads: int) -> tuple[int, int]:
        """Return the widths of keys and of values, d_k and d_v, of attention with this number of
        heads.
        """
        width = self.d_model // num_heads
        return self.attention_key_dim or width, self.attention_value_dim or width

    def validate_sizes(self) -> None:
        """Check each size, and that heads divide the width unless their own widths are given."""
        sizes = (
            "vocab_size",
            "d_model",
            "layers",
            "attention_heads",
            "ffn_dim",
            "max_source_length",
        )
        others = ("max_position_embeddings", "attention_key_dim", "attention_value_dim")
        fields = [side + size for side, size in product(("", *SIDES), sizes)]
        for field in (*others, *fields):
            self.check(field, "be at least 1", lambda size: size >= 1)
        self.check("chunk_size_feed_forward", "be at least 0", lambda size: size >= 0)
        needs_multiple = self.attention_key_dim is None or self.attention_value_dim is None
        for field in (f"{side}attention_heads" for side in SIDES):
            if needs_multiple and self.d_model % getattr(self, field, 1):
                raise UserError(
                    f"`d_model` must be a multiple of `{field}`, got d_model={self.d_model} and "
                    f"{field}={getattr(self, field)}."
                )

    def validate_architecture(self) -> None:
        """Check the other values, by themselves and together."""
        for field in ("dropout", "attention_dropout", "activation_dropout"):
            self.check(field, "be a probability in [0, 1)", lambda value: 0.0 <= value < 1.0)
        for field in ("layer_norm_eps", "init_std"):
            self.check(field, "be greater than 0", lambda value: value > 0.0)
        self.check(
            "activation_function",
            f"be one of {', '.join(sorted(ACT2FN))}",
            lambda name: name in ACT2FN,
        )
        if self.position_embedding_type == "sinusoidal":
            self.check("d_model", "be even for sinusoidal positions", lambda width: width % 2 == 0)


@strict
class VanillaTransformerEncoderFields(VanillaTransformerBaseConfig):
    """Fields of a model with an encoder."""

    encoder_layers: int = 6
    encoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    source_eos: bool = True


@strict
class VanillaTransformerDecoderFields(VanillaTransformerBaseConfig):
    """Fields of a model with a decoder."""

    decoder_layers: int = 6
    decoder_attention_heads: int = 8
    decoder_ffn_dim: int = 2048
    use_cache: bool = True


@strict
class VanillaTransformerConfig(VanillaTransformerEncoderFields, VanillaTransformerDecoderFields):
    """
    Shape and regularization of a [`VanillaTransformerModel`]; the defaults are the paper's base
    model.

    `VanillaTransformerConfig(d_model=1024, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
    encoder_attention_heads=16, decoder_attention_heads=16,
    dropout=0.3)` is its big model (table 3, last row).

    Args:
        vocab_size: Size of the vocabulary; section 5.1 has 37000 byte pairs of both languages.
        decoder_vocab_size: Size of a separate target vocabulary, `vocab_size` by default.
        share_encoder_decoder_embeddings: One embedding matrix for both (section 3.4).
        tie_word_embeddings: The output projection is the target embedding (section 3.4). `False`
            unties all matrices.
        d_model: Width of the residual stream, 512 in section 3.1. Must be even for sinusoids.
        encoder_layers: Layers of the encoder, N = 6 of section 3.1.
        decoder_layers: Layers of the decoder, N = 6 of section 3.1.
        encoder_attention_heads: Heads of the encoder, h = 8 of section 3.2.2.
        decoder_attention_heads: Heads of the decoder's self-attention and cross-attention, h = 8.
        encoder_ffn_dim: Inner width of the encoder's feed-forward layers, d_ff = 2048 of section
            3.3.
        decoder_ffn_dim: Inner width of the decoder's feed-forward layers, d_ff = 2048.
        activation_function: Between the two projections of equation 2, ReLU in section 3.3.
        dropout: Dropout on the output of sub-layers and on embeddings with positions, 0.1 in
            section 5.4.
        attention_dropout: Dropout on attention probabilities. Not in the paper.
        activation_dropout: Dropout after the activation of feed-forward layers. Not in the paper.
        attention_bias: Biases in attention projections. Not in the paper.
        attention_key_dim: Width of queries and keys of a head, d_k = 64 of section 3.2.2. By
            default `d_model / h`.
        attention_value_dim: Width of values of a head, d_v = 64 of section 3.2.2. By default
            `d_model / h`.
        lm_head_bias: Biases on logits, as in Marian. Not in the paper.
        normalize_before: `False`: `LayerNorm(x + Sublayer(x))`, section 3.1. `True`:
            `x + Sublayer(LayerNorm(x))` and one more normalization after each stack (pre-norm). Not
            in the paper.
        layer_norm_eps: 1e-6 is Tensor2Tensor's value; the paper gives none.
        scale_embedding: Multiply embeddings by √d_model (section 3.4).
        position_embedding_type: `"sinusoidal"` (section 3.5), `"learned"` (table 3, row E), or
            `"none"`: without positions, a permuted source gives permuted states. Not in the paper.
        sinusoid_layout: Sines and cosines in turns (section 3.5), or first all sines: `"halves"`,
            as in `MarianMTModel`, or `"tensor2tensor"`, with exponents from 0 to 1, as in
            Tensor2Tensor and Marian.
        max_position_embeddings: Number of learned positions; sinusoids have no limit.
        max_source_length: Longest source in training, in tokens with EOS. `TranslationPipeline`
            splits longer lines.
        source_eos: Attend to the EOS of a source. The sources of toolkits such as OpenNMT have
            none: `False`.
        init_std: Standard deviation of all initial weights. By default, as in Tensor2Tensor,
            projections start Glorot-uniform and embeddings with `d_model ** -0.5`. The paper gives
            no initialization.
        chunk_size_feed_forward: Positions per chunk of feed-forward layers, recomputed in the
            backward pass; 0: all.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id: Special tokens. The
            decoder input starts with `decoder_start_token_id` (section 3.1: shifted right).

    Raises:
        ValueError: A value is impossible by itself or together with another one.
    """

    model_type = "vanilla_transformer"
    remote_code = {
        "auto_map": {
            "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
            "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
            "AutoModelForSeq2SeqLM": (
                "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration"
            ),
        },
        "custom_pipelines": {"translation": {"impl": PIPELINE, "pt": ["AutoModelForSeq2SeqLM"]}},
    }
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}
    attribute_map["num_attention_heads"] = "encoder_attention_heads"
    base_model_tp_plan = stack_plan("encoder.", "self_attn") | stack_plan(
        "decoder.", "self_attn", "encoder_attn"
    )
    base_model_pp_plan = {
        "encoder": (["input_ids", "attention_mask"], ["encoder_hidden_states"]),
        "decoder": (
            ["decoder_input_ids", "encoder_hidden_states", "attention_mask"],
            ["last_hidden_state"],
        ),
    }
    base_model_fsdp_plan = {
        "encoder.layers.*": "free_full_weight",
        "decoder.layers.*": "free_full_weight",
    }

    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool = True
    max_source_length: int | None = None
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        super().__post_init__(**kwargs)

    def save_pretrained(
        self, save_directory: str | PathLike[str], *args: Any, **kwargs: Any
    ) -> None:
        """Save `config.json` and the code of the pipeline.

        The library copies only the modules in `auto_map`.
        """
        super().save_pretrained(save_directory, *args, **kwargs)
        module = Path(__file__).with_name(PIPELINE.split(".")[0] + ".py")
        if not module.exists():  # loaded as remote code, without the pipeline
            module = Path(HF_MODULES_CACHE, get_cached_module_file(self.name_or_path, module.name))
        # Without its mode, which not every disk has.
        shutil.copyfile(module, Path(save_directory, module.name))

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.share_encoder_decoder_embeddings:
            requirement = (
                f"equal `vocab_size`={self.vocab_size} while "
                "`share_encoder_decoder_embeddings` is on"
            )
            self.check("decoder_vocab_size", requirement, lambda size: size == self.vocab_size)


__all__ = ["VanillaTransformerConfig"]
