"""Convert from and to `MarianMTModel` of transformers, the format of the OPUS-MT models.

Both are the Transformer of the paper with the same parameter names. Marian adds biases to its attention and to its
logits, and its positional encodings hold all sines before all cosines.
"""

import copy
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.tokenization_vanilla_transformer import constructor_arguments

from .common import HEAD_WIDTHS, SOURCES_WITHOUT_EOS, check_supported, has_head_widths, load_model
from .comparison import ConvertedModel

_LAYER_NORM_EPS = 1e-5  # fixed in MarianMTModel
# Configuration fields with the same meaning in both.
SHARED_FIELDS = (
    *("vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "tie_word_embeddings", "d_model"),
    *("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "scale_embedding", "max_position_embeddings"),
    *("dropout", "attention_dropout", "activation_dropout"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
_LOGITS_BIAS = "final_logits_bias"
# Suffixes of parameters whose first axis (output) or second axis (input) is the residual stream.
_STREAM_OUT = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias", "layer_norm.weight", "layer_norm.bias")
_STREAM_IN = (
    *("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight"),
    *("embed_tokens.weight", "shared.weight", "lm_head.weight"),
)


def read_marian(name: str | Path) -> ConvertedModel:
    """Read a Marian model of transformers, such as `Helsinki-NLP/opus-mt-en-de`: a folder, or a name on the Hub.

    The tokenizer and the generation configuration stay the same.
    """
    original = load_model(MarianMTModel, name)
    return ConvertedModel(model_from_marian(original), load_tokenizer(name), original)


def model_from_marian(original: MarianMTModel) -> VanillaTransformerForConditionalGeneration:
    """Return the same model with copies of the parameters."""
    config = VanillaTransformerConfig(
        **{name: getattr(original.config, name) for name in SHARED_FIELDS},
        attention_bias=True,
        lm_head_bias=True,
        sinusoid_layout="halves",
        layer_norm_eps=_LAYER_NORM_EPS,
        init_std=original.config.init_std,
    )
    model = VanillaTransformerForConditionalGeneration(config)
    weights = original.state_dict()
    weights["lm_head.bias"] = weights[_LOGITS_BIAS][0]
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    model.generation_config = copy.deepcopy(original.generation_config)
    return model.eval()


def write_marian(
    model: VanillaTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> list[tuple[str, PreTrainedModel]]:
    """Write a `MarianMTModel`, which transformers loads without custom code.

    Marian always uses a layer-norm epsilon of 1e-5. With another epsilon the logits differ in their last digits. The
    paper's length penalty becomes the `length_penalty` of transformers with the same exponent, and the limit of
    source + 50 tokens becomes 512 tokens.
    """
    converted = model_to_marian(model)
    converted.save_pretrained(folder)
    library_tokenizer(tokenizer).save_pretrained(folder)
    return [("float32", converted)]


def model_to_marian(original: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """Return the same model as `MarianMTModel` with copies of the parameters."""
    config = original.config
    check_supported(
        "MarianMTModel",
        {
            "it normalizes before each sub-layer (`normalize_before`)": config.normalize_before,
            "its positions are learned": config.position_embedding_type == "learned",
            "it has no positions": config.position_embedding_type == "none",
            HEAD_WIDTHS: has_head_widths(config),
            SOURCES_WITHOUT_EOS: not config.source_eos,
        },
    )
    model = MarianMTModel(
        MarianConfig(**{name: getattr(config, name) for name in SHARED_FIELDS}, forced_eos_token_id=None)
    )
    weights = original.state_dict()
    if config.sinusoid_layout == "interleaved":
        weights = _put_sines_first(weights, config.d_model)
    model.load_state_dict({name: _find_weight(name, weights, tensor) for name, tensor in model.state_dict().items()})
    model.generation_config = library_generation_config(original.generation_config)
    return model.eval()


def _put_sines_first(weights: dict[str, torch.Tensor], d_model: int) -> dict[str, torch.Tensor]:
    """Reorder the features of the residual stream, whose sines and cosines alternate; the function stays the same.

    Layers that write to the stream are permuted on their output, layers that read from it on their input. Features
    inside attention and feed-forward layers keep their order.
    """
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    permuted = {}
    for name, tensor in weights.items():
        if name.endswith(_STREAM_OUT):
            tensor = tensor[order]
        elif name.endswith(_STREAM_IN):
            tensor = tensor[:, order]
        permuted[name] = tensor
    return permuted


def _find_weight(name: str, weights: dict[str, torch.Tensor], initial: torch.Tensor) -> torch.Tensor:
    """Return our tensor for Marian's parameter `name`, or Marian's `initial` value if we have none."""
    if name == _LOGITS_BIAS:
        bias = weights.get("lm_head.bias")
        return initial if bias is None else bias[None]
    if name == "model.shared.weight":
        return weights["model.encoder.embed_tokens.weight"]
    if name.endswith("embed_positions.weight"):
        return initial
    if name.endswith("_proj.bias") and name not in weights:
        return torch.zeros_like(initial)
    return weights[name]


def library_generation_config(generation_config: GenerationConfig) -> GenerationConfig:
    """Return a copy without the fields of this package."""
    plain = copy.deepcopy(generation_config)
    for name in ("length_penalty_type", "max_new_tokens_beyond_source"):
        if hasattr(plain, name):
            delattr(plain, name)
    if plain.max_length is None and plain.max_new_tokens is None:
        plain.max_new_tokens = 512
    return plain


def library_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the same `tokenizer.json` in a tokenizer class of transformers."""
    if not hasattr(tokenizer, "backend_tokenizer"):
        return tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **constructor_arguments(tokenizer))
