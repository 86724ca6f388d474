"""
Marian's form in transformers, in which OPUS-MT publishes its models.

Both are the Transformer of the paper with the same names of parameters. Marian's has biases in its attention, a bias
of the logits, and positions that hold all sines and then all cosines.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .comparison import Comparison, compare_models
from .destination import SOURCES_WITHOUT_EOS, check_destination, refuse, write_model
from .loading import load_model

_EPSILON = 1e-5  # of every normalisation in MarianMTModel, which has no other
# Fields of the configuration that mean the same in both.
_SAME = (
    *("vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "tie_word_embeddings", "d_model"),
    *("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "scale_embedding", "max_position_embeddings"),
    *("dropout", "attention_dropout", "activation_dropout"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
_LOGITS_BIAS = "final_logits_bias"
# Parameters with the residual stream on their first and on their second axis, by the end of their names.
_STREAM_OUT = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias", "layer_norm.weight", "layer_norm.bias")
_STREAM_IN = (
    *("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight"),
    *("embed_tokens.weight", "shared.weight", "lm_head.weight"),
)


def from_marian(name: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison:
    """
    Writes a Marian model of transformers, such as `Helsinki-NLP/opus-mt-en-de`, as a model folder of this package. Its
    tokenizer and its decoding stay as they are.

    Args:
        name: A folder, or a name on the Hub.
        sentences: What both are compared on.

    Raises:
        ValueError: the model is of another type, or cannot be represented; the text lists why.
        OSError: there is no such model, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    original = load_model(MarianMTModel, name)
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = model_from_marian(original)
    comparison = compare_models(original, model, tokenizer, sentences)
    write_model(model, tokenizer, output_dir)
    return comparison


def model_from_marian(original: MarianMTModel) -> VanillaTransformerForConditionalGeneration:
    """The same model, with parameters of its own."""
    config = VanillaTransformerConfig(
        **{name: getattr(original.config, name) for name in _SAME},
        attention_bias=True,
        lm_head_bias=True,
        sinusoid_layout="halves",
        layer_norm_eps=_EPSILON,
        init_std=original.config.init_std,
    )
    model = VanillaTransformerForConditionalGeneration(config)
    weights = original.state_dict()
    weights["lm_head.bias"] = weights[_LOGITS_BIAS][0]
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    model.generation_config = copy.deepcopy(original.generation_config)
    return model.eval()


def to_marian(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison:
    """
    Writes a model folder of this package in Marian's form, which transformers loads without custom code.

    Where this package's model normalises with another ε than 1e-5, which is Marian's only one, logits differ in their
    last digits. What transformers alone cannot decode, the paper's length penalty and a limit by the source's length,
    becomes its own `length_penalty` of the same exponent, and 512 tokens.

    Raises:
        ValueError: the model cannot be represented; the text lists why.
        OSError: there is no such model, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    original = load_model(VanillaTransformerForConditionalGeneration, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = model_to_marian(original)
    comparison = compare_models(original, model, tokenizer, sentences)
    write_model(model, _without_own_class(tokenizer), output_dir)
    return comparison


def model_to_marian(original: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """
    The same model in Marian's form, with parameters of its own.

    Raises:
        ValueError: it cannot be represented; the text lists why.
    """
    config = original.config
    refuse(
        "Marian's form",
        {
            "it normalises before each sub-layer (`normalize_before`)": config.normalize_before,
            "its positions are learned": config.position_embedding_type != "sinusoidal",
            SOURCES_WITHOUT_EOS: not config.source_eos,
        },
    )
    model = MarianMTModel(MarianConfig(**{name: getattr(config, name) for name in _SAME}, forced_eos_token_id=None))
    weights = original.state_dict()
    if config.sinusoid_layout == "interleaved":
        weights = _permuted(weights, _sines_first(config.d_model))
    model.load_state_dict({name: _find(name, weights, tensor) for name, tensor in model.state_dict().items()})
    model.generation_config = _without_the_papers(original.generation_config)
    return model.eval()


def _sines_first(d_model: int) -> torch.Tensor:
    """Features of interleaved positions in the order of Marian's: those of sines, then those of cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def _permuted(weights: dict[str, torch.Tensor], order: torch.Tensor) -> dict[str, torch.Tensor]:
    """
    The same function with the features of the residual stream in another order: whatever writes to it is permuted on
    its output, whatever reads from it on its input. Attention and feed-forward layers keep theirs inside.
    """
    permuted = {}
    for name, tensor in weights.items():
        if name.endswith(_STREAM_OUT):
            tensor = tensor[order]
        elif name.endswith(_STREAM_IN):
            tensor = tensor[:, order]
        permuted[name] = tensor
    return permuted


def _find(name: str, weights: dict[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The tensor of ours that Marian's `name` stands for; `like` is what Marian begins with."""
    if name == _LOGITS_BIAS:
        bias = weights.get("lm_head.bias")
        return like if bias is None else bias[None]
    if name == "model.shared.weight":
        return weights["model.encoder.embed_tokens.weight"]
    if name.endswith("embed_positions.weight"):
        return like
    if name.endswith("_proj.bias") and name not in weights:
        return torch.zeros_like(like)
    return weights[name]


def _without_the_papers(generation_config: GenerationConfig) -> GenerationConfig:
    """What transformers alone understands of a generation config."""
    plain = copy.deepcopy(generation_config)
    for name in ("length_penalty_type", "max_new_tokens_beyond_source"):
        if hasattr(plain, name):
            delattr(plain, name)
    if plain.max_length is None and plain.max_new_tokens is None:
        plain.max_new_tokens = 512
    return plain


def _without_own_class(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The library's class for the same `tokenizer.json`."""
    if not hasattr(tokenizer, "backend_tokenizer"):
        return tokenizer
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        split_special_tokens=tokenizer.split_special_tokens,
        clean_up_tokenization_spaces=False,
        **special,
    )
