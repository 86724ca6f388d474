"""Convert from OpenNMT-py and its successor eole: pre-norm, the paper's positional encodings,
sources without EOS.

An OpenNMT-py checkpoint is one pickle with options, vocabularies and weights. An eole model folder
has `config.json` (without options that have their default), `vocab.json` and
`model.00.safetensors`. The SentencePiece models are at the paths in the options, or beside the
weights under the same names.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import GenerationConfig, MarianTokenizer

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.json_files import read_json

from .common import (
    ForeignWeights,
    build_sentencepiece_tokenizer,
    find_sentencepiece_model,
    flatten,
    option_reasons,
    rename,
    side_reasons,
)
from .formats import Checkpoint, Format, Options, special_ids
from .weight_names import EOLE_NAMES, OPENNMT_PY_NAMES, Names

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
_SPECIAL_TOKENS = {
    "unk_token": "<unk>",
    "pad_token": "<blank>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}
_SPECIAL = "special_tokens"  # the entry of a checkpoint's options with the special tokens
# Parameters that may share the weights of another one.
_ALIASES = {
    "model.decoder.embed_tokens.weight": ["model.encoder.embed_tokens.weight"],
    "lm_head.weight": ["model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"],
}
_UNUSED = r".*(?<!\.weight)(?<!\.bias)"  # positional encodings and other buffers
# Supported text transforms. The tokenizer would have to apply any other.
_TRANSFORMS = {"sentencepiece", "filtertoolong"}
# The values of options that this package has a counterpart for.
_OPENNMT_PY_OPTIONS: dict[str, Sequence[Any]] = {
    **{"encoder_type": ["transformer"], "decoder_type": ["transformer"], "model_task": ["seq2seq"]},
    **{
        "position_encoding": [True],
        "position_encoding_type": ["SinusoidalInterleaved"],
        "max_relative_positions": [0],
    },
    **{
        "layer_norm": ["standard"],
        "generator_function": ["softmax"],
        "n_src_feats": [0],
        "copy_attn": [False],
    },
    **{
        "multiquery": [False],
        "num_kv": [0],
        "sliding_window": [0],
        "num_experts": [0],
        "parallel_residual": [False],
    },
    "pos_ffn_activation_fn": [*_ACTIVATIONS],
}
_EOLE_POSITIONS: dict[str, Sequence[Any]] = {"position_encoding_type": ["SinusoidalInterleaved"]}
_EOLE_OPTIONS: dict[str, Sequence[Any]] = {  # of both sides
    **{
        **_EOLE_POSITIONS,
        "layer_norm": ["standard"],
        "heads_kv": [None],
        "head_dim": [None],
        "attn_scaling": [None],
    },
    **{
        "sliding_window": [0],
        "num_experts": [0],
        "parallel_residual": [False],
        "ffn_layernorm": [False],
    },
    **{
        "query_norm": [False],
        "key_norm": [False],
        "q_gating": [False],
        "relative_positions_buckets": [0],
    },
    "mlp_activation_fn": [*_ACTIVATIONS],
}
_EOLE_ENCODER_OPTIONS: dict[str, Sequence[Any]] = {
    **{"encoder_type": ["transformer"], "encoder_layer_style": ["standard"], **_EOLE_OPTIONS},
    "final_encoder_layer_norm": [True],
}
_EOLE_DECODER_OPTIONS = {"decoder_type": ["transformer"], **_EOLE_OPTIONS, "layer_types": [None]}
# Our fields, and the options that declare them.
_FIELDS = {
    "d_model": "hidden_size",
    "encoder_layers": "enc_layers",
    "decoder_layers": "dec_layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "transformer_ff",
    "decoder_ffn_dim": "transformer_ff",
    "layer_norm_eps": "norm_eps",
}
_EOLE_FIELDS = {
    "d_model": "decoder.hidden_size",
    "encoder_layers": "encoder.layers",
    "decoder_layers": "decoder.layers",
    "encoder_attention_heads": "encoder.heads",
    "decoder_attention_heads": "decoder.heads",
    "encoder_ffn_dim": "encoder.transformer_ff",
    "decoder_ffn_dim": "decoder.transformer_ff",
    "layer_norm_eps": "decoder.norm_eps",
}
_EOLE_DEFAULTS = {
    "encoder.layers": 2,
    "decoder.layers": 2,
    "encoder.heads": 8,
    "decoder.heads": 8,
    "encoder.transformer_ff": 2048,
    "decoder.transformer_ff": 2048,
    "decoder.hidden_size": 512,
    "decoder.mlp_activation_fn": "relu",
    "decoder.norm_eps": 1e-5,
}


def read_opennmt_py(path: str | Path) -> Checkpoint:
    """Read an OpenNMT-py checkpoint (`*.pt`)."""
    path = Path(path)
    content = load_pickled_checkpoint(
        path, "OpenNMT-py", "generator", allowed_types=[argparse.Namespace]
    )
    options, vocab = vars(content["opt"]), content["vocab"]
    if not isinstance(vocab, dict) or not isinstance(vocab.get("src"), list):
        raise UserError(
            f"{path} must be a checkpoint of OpenNMT-py 3. Convert older ones with the scripts in "
            "its tools/."
        )
    weights = dict(content["model"])
    for name, tensor in content["generator"].items():
        weights[f"generator.{name}"] = tensor
    names = options.get("default_specials", _SPECIAL_TOKENS.values())
    special = dict(zip(_SPECIAL_TOKENS, names, strict=True))
    return _checkpoint(options, weights, vocab, special, options, path.parent)


def _reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    options = checkpoint.options
    transforms: set[str] = set()
    for corpus in options["data"].values():
        transforms.update(corpus.get("transforms", []))
    return {
        **option_reasons(options, _OPENNMT_PY_OPTIONS),
        "it uses average attention": options.get("self_attn_type") == "average",
        **_text_reasons(transforms, options),
    }


def _fields(checkpoint: Checkpoint) -> Options:
    options = {"norm_eps": 1e-6, **checkpoint.options}
    return {
        **{ours: options[theirs] for ours, theirs in _FIELDS.items()},
        "activation_function": _ACTIVATIONS[options["pos_ffn_activation_fn"]],
        **_common_fields(checkpoint, options, options),
    }


def read_eole(folder: str | Path) -> Checkpoint:
    """Read an eole model folder."""
    folder = Path(folder)
    config, vocab = (read_json(folder / name) for name in ("config.json", "vocab.json"))
    sides = [vocab.get(side) for side in ("src", "tgt")] if isinstance(vocab, dict) else [None]
    if not all(isinstance(tokens, list) for tokens in sides):
        raise UserError(f"{folder / 'vocab.json'} must map src and tgt to lists of tokens.")
    parts = config.get("model") if isinstance(config, dict) else None
    if not isinstance(parts, dict) or "encoder" not in parts:
        raise UserError(
            f"{folder / 'config.json'} must have eole's format, with encoder and decoder under "
            "`model`."
        )
    weights = load_file(folder / "model.00.safetensors")
    paths = {}
    for name, value in _subword_options(config).items():
        paths[name] = str(value).replace("${MODEL_PATH}", os.fspath(folder))
    special = _SPECIAL_TOKENS | vocab.get("specials", {})
    return _checkpoint(config, weights, vocab, special, paths, folder)


def _subword_options(config: Options) -> Options:
    return (config.get("transforms_configs") or {}).get("sentencepiece", {})


def _eole_reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    config = checkpoint.options
    model = config["model"]
    encoder, decoder = model["encoder"], model["decoder"]
    embeddings = model.get("embeddings") or {}
    return {
        **option_reasons({"encoder_type": None} | encoder, _EOLE_ENCODER_OPTIONS),
        **option_reasons({"decoder_type": None} | decoder, _EOLE_DECODER_OPTIONS),
        **option_reasons(embeddings, {**_EOLE_POSITIONS, "normalize": [False]}),
        **side_reasons(encoder, decoder, ["hidden_size", "mlp_activation_fn", "norm_eps"]),
        **_text_reasons({*(config.get("transforms") or [])}, _subword_options(config)),
    }


def _eole_fields(checkpoint: Checkpoint) -> Options:
    model = checkpoint.options["model"]
    options = _EOLE_DEFAULTS | flatten(model)
    return {
        **{ours: options[theirs] for ours, theirs in _EOLE_FIELDS.items()},
        "activation_function": _ACTIVATIONS[str(options["decoder.mlp_activation_fn"])],
        **_common_fields(checkpoint, model, checkpoint.options.get("training") or {}),
    }


def _text_reasons(transforms: set[str], options: Options) -> dict[str, bool]:
    others = sorted(transforms - _TRANSFORMS)
    return {
        f"it also transforms text with {', '.join(others)}": bool(others),
        "it does not tokenize with SentencePiece": not options.get("src_subword_model"),
    }


def _checkpoint(
    options: Options,
    weights: dict[str, torch.Tensor],
    vocab: Options,
    special_tokens: Mapping[str, str],
    paths: Options,
    folder: Path,
) -> Checkpoint:
    """Return the checkpoint of either toolkit, with the special tokens among its options.

    Args:
        paths: The SentencePiece models, as the toolkit declares them.
    """
    start = vocab.get("decoder_start_token", special_tokens["bos_token"])
    special = {**special_tokens, "decoder_start_token": start}
    tokens = (vocab["src"], vocab["tgt"])

    def build_tokenizer() -> MarianTokenizer:
        names = paths["src_subword_model"], paths.get("tgt_subword_model")
        source, target = (find_sentencepiece_model(name or names[0], folder) for name in names)
        return build_sentencepiece_tokenizer((source, target), tokens, special_tokens)

    return Checkpoint({**options, _SPECIAL: special}, weights, tokens, build_tokenizer)


def _common_fields(checkpoint: Checkpoint, tying: Options, training: Options) -> Options:
    """Return the fields that both toolkits declare alike.

    Args:
        tying: Has the options of shared embeddings.
        training: Has the dropout rates. Training can change them; the last value counts.
    """
    source, target = checkpoint.tokens
    special = checkpoint.options[_SPECIAL]
    missing = sorted({*special.values()} - {*target})
    if missing:
        raise UserError(f"The target vocabulary must contain {', '.join(missing)}.")
    if source.index(special["pad_token"]) != target.index(special["pad_token"]):
        raise UserError("Padding must have the same id in both vocabularies.")
    ids = {}
    for name in ("pad_token", "bos_token", "eos_token", "decoder_start_token"):
        ids[f"{name}_id"] = target.index(special[name])
    dropout = training.get("dropout", [0.3])[-1]
    is_tied = bool(tying.get("share_decoder_embeddings"))
    # Source and target embeddings are shared only if the output projection is tied.
    is_shared = bool(tying.get("share_embeddings")) and is_tied and source == target
    return {
        **ids,
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "dropout": dropout,
        "activation_dropout": dropout,
        "attention_dropout": training.get("attention_dropout", [0.1])[-1],
        "share_encoder_decoder_embeddings": is_shared,
        "tie_word_embeddings": is_tied,
        "normalize_before": True,
        "lm_head_bias": True,
        "attention_bias": any(name.endswith("linear_query.bias") for name in checkpoint.weights),
        "source_eos": False,
    }


def _search(checkpoint: Checkpoint, config: VanillaTransformerConfig) -> GenerationConfig:
    """Return the defaults of both toolkits: hypotheses are ranked by the mean of their
    log-probabilities.
    """
    ids = special_ids(config)
    del ids["bos_token_id"]
    return GenerationConfig(
        num_beams=5,
        length_penalty=1.0,
        length_penalty_type="power",
        max_new_tokens=250,
        suppress_tokens=[config.pad_token_id],
        **ids,
    )


def _find_weight(
    names: Names,
    checkpoint: Checkpoint,
    config: VanillaTransformerConfig,
    name: str,
    initial: torch.Tensor,
    weights: ForeignWeights,
) -> torch.Tensor:
    """Return the toolkit's tensor for our parameter `name`.

    Shared weights may be saved once or several times.
    """
    candidates = [rename(ours, names) for ours in (name, *_ALIASES.get(name, ()))]
    if name.endswith(".bias") and not name.endswith("norm.bias") and candidates[0] not in weights:
        return torch.zeros_like(initial)  # a projection without a bias
    return weights.first(*candidates)


# Their requirements conflict with this package's, so nothing is compared.
OPENNMT_PY = Format(
    "OpenNMT-py",
    read_opennmt_py,
    _reasons,
    _fields,
    _search,
    partial(_find_weight, OPENNMT_PY_NAMES),
    _UNUSED,
)
EOLE = Format(
    "eole",
    read_eole,
    _eole_reasons,
    _eole_fields,
    _search,
    partial(_find_weight, EOLE_NAMES),
    _UNUSED,
)
