"""Convert from and to `MarianMTModel` of transformers, the format of the OPUS-MT models.

Both are the Transformer of the paper with the same parameter names. Marian adds biases to its
attention and to its logits, and its positional encodings hold all sines before all cosines.
"""

import copy
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
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
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenization_vanilla_transformer import constructor_arguments

from .common import OTHER_SIZES, ForeignWeights, check_supported, target_reasons
from .formats import Checkpoint, Format, Options, library_search, read_library_model

_LAYER_NORM_EPS = 1e-5  # fixed in MarianMTModel
# Configuration fields with the same meaning in both.
SHARED_FIELDS = (
    *(
        "vocab_size",
        "decoder_vocab_size",
        "share_encoder_decoder_embeddings",
        "tie_word_embeddings",
        "d_model",
    ),
    *("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"),
    *(
        "encoder_ffn_dim",
        "decoder_ffn_dim",
        "activation_function",
        "scale_embedding",
        "max_position_embeddings",
    ),
    *("dropout", "attention_dropout", "activation_dropout"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
_LOGITS_BIAS = "final_logits_bias"
# By default, transformers 4 has a third one.
_INPUTS = {"model_input_names": ["input_ids", "attention_mask"]}
# Suffixes of parameters whose first axis (output) or second axis (input) is the residual stream.
_STREAM_OUT = (
    "out_proj.weight",
    "out_proj.bias",
    "fc2.weight",
    "fc2.bias",
    "layer_norm.weight",
    "layer_norm.bias",
)
_STREAM_IN = (
    *("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight"),
    *("embed_tokens.weight", "shared.weight", "lm_head.weight"),
)


def _fields(checkpoint: Checkpoint) -> Options:
    return {
        **{name: checkpoint.options[name] for name in (*SHARED_FIELDS, "init_std")},
        "attention_bias": True,
        "lm_head_bias": True,
        "sinusoid_layout": "halves",
        "layer_norm_eps": _LAYER_NORM_EPS,
    }


def _find_weight(
    checkpoint: Checkpoint,
    config: VanillaTransformerConfig,
    name: str,
    initial: torch.Tensor,
    weights: ForeignWeights,
) -> torch.Tensor:
    if name == "lm_head.bias":
        return weights.first(_LOGITS_BIAS)[0]
    return weights.first(name.removeprefix("model."))


MARIAN = Format(
    "MarianMTModel",
    partial(read_library_model, MarianMTModel, load_tokenizer),
    lambda checkpoint: {},
    _fields,
    library_search,
    _find_weight,
    unused=r"shared\.weight|(en|de)coder\.embed_positions\.weight",
)


def write_marian(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> list[tuple[str, PreTrainedModel]]:
    """Write a `MarianMTModel`, which transformers since 4.57 and CTranslate2's own converter load
    without our code.

    Marian always uses a layer-norm epsilon of 1e-5. With another epsilon the logits differ in their
    last digits. The paper's length penalty becomes the `length_penalty` of transformers with the
    same exponent, and the limit of source + 50 tokens becomes `max_length: 512`.
    """
    config = model.config
    others = (config.vocab_size - 1, config.eos_token_id, config.decoder_start_token_id)
    is_single = hasattr(tokenizer, "backend_tokenizer")
    is_other = config.decoder_vocab_size != config.vocab_size
    check_supported("MarianMTModel", {OTHER_SIZES: is_single and is_other})
    if is_single and config.pad_token_id not in others:
        model, tokenizer = _append_padding(model, tokenizer)
    else:
        tokenizer = library_tokenizer(tokenizer, **_INPUTS)
    converted = model_to_marian(model)
    start_from_zero(converted)
    converted.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The words of transformers 4, which later releases read, too.
    path = folder / "tokenizer_config.json"
    words = json.loads(path.read_text(encoding="utf-8"))
    words["additional_special_tokens"] = words.pop("extra_special_tokens", [])
    name = words["tokenizer_class"]
    words["tokenizer_class"] = name.replace("TokenizersBackend", "PreTrainedTokenizerFast")
    path.write_text(json.dumps(words, indent=2) + "\n", encoding="utf-8")
    converted.generation_config.max_length = None  # a comparison has a limit of its own
    return [("float32", converted)]


def _append_padding(
    model: VanillaTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase
) -> tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerBase]:
    """Return both with padding as their last entry, which CTranslate2 drops, and the old one
    without a use.

    CTranslate2 also wants an unknown token, which a vocabulary with all bytes never gives.
    """
    size, start = model.config.vocab_size, model.config.decoder_start_token_id
    model = copy.deepcopy(model)
    model.resize_token_embeddings(size + 1, mean_resizing=False)
    if not model.config.share_encoder_decoder_embeddings:
        model.resize_decoder_token_embeddings(size + 1)
    for name, tensor in model.state_dict().items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight", "lm_head.bias")):
            tensor[size] = tensor[start]  # which no translation has either
    model.config.pad_token_id = model.generation_config.pad_token_id = size
    padding = json.dumps(tokenizer.pad_token)
    state = tokenizer.backend_tokenizer.to_str().replace(padding, '"<unused>"')
    backend = Tokenizer.from_str(state)
    numbers = range(backend.get_vocab_size(), size)
    backend.add_special_tokens([f"<unused{number}>" for number in numbers])
    unknown = tokenizer.unk_token or tokenizer.bos_token
    words = {"pad_token": "<pad>", "unk_token": unknown}
    options = {"tokenizer_object": backend, **words, **_INPUTS}
    return model, library_tokenizer(tokenizer, **options)


def marian_reasons(config: VanillaTransformerConfig) -> dict[str, bool]:
    """Return the reasons why `MarianMTModel` might not represent a model, and whether each
    applies.
    """
    is_no_sinusoid = config.position_embedding_type != "sinusoidal"
    has_other_layout = config.sinusoid_layout == "tensor2tensor"
    return {
        "it normalizes before each sub-layer (`normalize_before`)": config.normalize_before,
        "its positions are no sinusoids (`position_embedding_type`)": is_no_sinusoid,
        "its sinusoids are not the paper's (`sinusoid_layout`)": has_other_layout,
        **target_reasons(config),
    }


def model_to_marian(original: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """Return the same model as `MarianMTModel` with copies of the parameters."""
    config = original.config
    check_supported("MarianMTModel", marian_reasons(config))
    fields = {name: getattr(config, name) for name in SHARED_FIELDS}
    model = MarianMTModel(MarianConfig(**fields, forced_eos_token_id=None))
    weights = original.state_dict()
    if config.sinusoid_layout == "interleaved":
        weights = _put_sines_first(weights, config.d_model)
    weights["model.shared.weight"] = weights["model.encoder.embed_tokens.weight"]
    if "lm_head.bias" in weights:
        weights[_LOGITS_BIAS] = weights["lm_head.bias"][None]
    # Biases that we lack are zero, and the positions are computed.
    model.load_state_dict(weights, strict=False)
    model.generation_config = library_generation_config(original.generation_config)
    return model.eval()


@torch.no_grad()
def start_from_zero(model: PreTrainedModel) -> None:
    """Subtract the start token's embedding from all, because decoders of Marian start with zero.

    The first self-attention adds it again: its projections to their biases, and its output to the
    residual stream. A tied output projection adds one number to all logits of a token, which
    changes no probability.
    """
    table = model.model.decoder.embed_tokens.weight
    start = table[model.config.decoder_start_token_id].clone()
    scale = math.sqrt(model.config.d_model) if model.config.scale_embedding else 1.0
    table -= start
    for stack in (model.model.encoder, model.model.decoder):
        if stack.embed_tokens.weight is table:
            attention, shift = stack.layers[0].self_attn, scale * start
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
                projection.bias += projection.weight @ shift
            attention.out_proj.bias += shift


def _put_sines_first(weights: dict[str, torch.Tensor], d_model: int) -> dict[str, torch.Tensor]:
    """Reorder the features of the residual stream, whose sines and cosines alternate; the function
    stays the same.

    Layers that write to the stream are permuted on their output, layers that read from it on their
    input. Features inside attention and feed-forward layers keep their order.
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


def library_generation_config(generation_config: GenerationConfig) -> GenerationConfig:
    """Return a copy without the fields of this package."""
    plain = copy.deepcopy(generation_config)
    for name in ("length_penalty_type", "max_new_tokens_beyond_source"):
        if hasattr(plain, name):
            delattr(plain, name)
    # As in OPUS-MT: `max_new_tokens` would win over the `generation_max_length` of a Trainer.
    # With the start token
    limit = plain.max_length if plain.max_new_tokens is None else plain.max_new_tokens + 1
    plain.max_length, plain.max_new_tokens = limit or 512, None
    return plain


def library_tokenizer(
    tokenizer: PreTrainedTokenizerBase, **changes: Any
) -> PreTrainedTokenizerBase:
    """Return the same `tokenizer.json` in a tokenizer class of transformers, with changed
    arguments.
    """
    if not hasattr(tokenizer, "backend_tokenizer"):
        return tokenizer
    arguments = {
        "tokenizer_object": tokenizer.backend_tokenizer,
        **constructor_arguments(tokenizer),
    }
    return PreTrainedTokenizerFast(**arguments | changes)
