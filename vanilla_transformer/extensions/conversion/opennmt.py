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
from transformers import GenerationConfig

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.utils.file_utils import read_json

from .common import (
    ForeignWeights,
    build_model,
    build_sentencepiece_tokenizer,
    check_supported,
    find_sentencepiece_model,
    option_reasons,
    rename,
    side_reasons,
)
from .converted_model import ConvertedModel

Weights = dict[str, torch.Tensor]
_SIDES = ("encoder", "decoder")
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
_SPECIAL_TOKENS = {
    "unk_token": "<unk>",
    "pad_token": "<blank>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}
# Supported text transforms. The tokenizer would have to apply any other.
_TRANSFORMS = {"sentencepiece", "filtertoolong"}
# The defaults of both toolkits.
_BEAMS, _MAX_NEW_TOKENS = 5, 250
# The toolkits' names of our parameters, see `rename`.
_PROJECTIONS = {
    r"\.encoder_attn\.": ".context_attn.",
    r"\.q_proj": ".linear_query",
    r"\.k_proj": ".linear_keys",
    r"\.v_proj": ".linear_values",
    r"\.out_proj": ".final_linear",
}
OPENNMT_PY = {
    r"^model\.": "",
    r"^(encoder|decoder)\.embed_tokens": r"\1.embeddings.make_embedding.emb_luts.0",
    r"^lm_head": "generator",
    r"^encoder\.layers": "encoder.transformer",
    r"^decoder\.layers": "decoder.transformer_layers",
    r"^(encoder.*)\.self_attn_layer_norm": r"\1.layer_norm",
    r"^(decoder.*)\.self_attn_layer_norm": r"\1.layer_norm_1",
    r"\.encoder_attn_layer_norm": ".layer_norm_2",
    r"\.fc([12])": r".feed_forward.w_\1",
    r"\.final_layer_norm": ".feed_forward.layer_norm",
    **_PROJECTIONS,
}
EOLE = {
    r"^model\.": "",
    r"^encoder\.embed_tokens": "src_emb.embeddings",
    r"^decoder\.embed_tokens": "tgt_emb.embeddings",
    r"^lm_head": "generator",
    r"\.layers": ".transformer_layers",
    r"\.self_attn_layer_norm": ".input_layernorm",
    r"\.encoder_attn_layer_norm": ".precontext_layernorm",
    r"\.fc1": ".mlp.gate_up_proj",
    r"\.fc2": ".mlp.down_proj",
    r"\.final_layer_norm": ".post_attention_layernorm",
    **_PROJECTIONS,
}
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


def read_opennmt_py(path: str | Path) -> ConvertedModel:
    """Read an OpenNMT-py checkpoint (`*.pt`).

    The original is None, since OpenNMT-py's requirements conflict with this package's.
    """
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
    used = {name for corpus in options["data"].values() for name in corpus.get("transforms", [])}
    check_supported(
        "This package",
        {
            **option_reasons(options, _OPENNMT_PY_OPTIONS),
            "it uses average attention": options.get("self_attn_type") == "average",
            **_text_reasons(used, options),
        },
    )
    weights = content["model"] | {
        f"generator.{name}": tensor for name, tensor in content["generator"].items()
    }
    fields = {
        "d_model": options["hidden_size"],
        **{f"{side}_layers": options[f"{side[:3]}_layers"] for side in _SIDES},
        **{f"{side}_attention_heads": options["heads"] for side in _SIDES},
        **{f"{side}_ffn_dim": options["transformer_ff"] for side in _SIDES},
        "activation_function": _ACTIVATIONS[options["pos_ffn_activation_fn"]],
        "layer_norm_eps": options.get("norm_eps", 1e-6),
        **_dropouts(options),
    }
    fields |= _tying(options, vocab["src"] == vocab["tgt"])
    special = _SPECIAL_TOKENS | dict(
        zip(_SPECIAL_TOKENS, options.get("default_specials", _SPECIAL_TOKENS.values()), strict=True)
    )
    return _build(fields, weights, OPENNMT_PY, vocab, special, options, path.parent)


def read_eole(folder: str | Path) -> ConvertedModel:
    """Read an eole model folder.

    The original is None, since eole's requirements conflict with this package's.
    """
    folder = Path(folder)
    config, vocab = (read_json(folder / name) for name in ("config.json", "vocab.json"))
    if not isinstance(vocab, dict) or not all(
        isinstance(vocab.get(s), list) for s in ("src", "tgt")
    ):
        raise UserError(f"{folder / 'vocab.json'} must map src and tgt to lists of tokens.")
    parts = config.get("model") if isinstance(config, dict) else None
    if not isinstance(parts, dict) or "encoder" not in parts:
        raise UserError(
            f"{folder / 'config.json'} must have eole's format, with encoder and decoder under "
            "`model`."
        )
    model, options = (
        config["model"],
        (config.get("transforms_configs") or {}).get("sentencepiece", {}),
    )
    encoder, decoder = model["encoder"], model["decoder"]
    check_supported(
        "This package",
        {
            **option_reasons({"encoder_type": None} | encoder, _EOLE_ENCODER_OPTIONS),
            **option_reasons({"decoder_type": None} | decoder, _EOLE_DECODER_OPTIONS),
            **option_reasons(
                model.get("embeddings") or {}, {**_EOLE_POSITIONS, "normalize": [False]}
            ),
            **side_reasons(encoder, decoder, ["hidden_size", "mlp_activation_fn", "norm_eps"]),
            **_text_reasons(set(config.get("transforms") or []), options),
        },
    )
    weights = load_file(folder / "model.00.safetensors")
    fields = {
        "d_model": decoder.get("hidden_size", 512),
        **{f"{side}_layers": model[side].get("layers", 2) for side in _SIDES},
        **{f"{side}_attention_heads": model[side].get("heads", 8) for side in _SIDES},
        **{f"{side}_ffn_dim": model[side].get("transformer_ff", 2048) for side in _SIDES},
        "activation_function": _ACTIVATIONS[decoder.get("mlp_activation_fn", "relu")],
        "layer_norm_eps": decoder.get("norm_eps", 1e-5),
        **_dropouts(config.get("training") or {}),
        **_tying(model, vocab["src"] == vocab["tgt"]),
    }
    paths = {
        name: str(value).replace("${MODEL_PATH}", os.fspath(folder))
        for name, value in options.items()
    }
    special = _SPECIAL_TOKENS | vocab.get("specials", {})
    return _build(fields, weights, EOLE, vocab, special, paths, folder)


def _text_reasons(transforms: set[str], options: Mapping[str, Any]) -> dict[str, bool]:
    others = sorted(transforms - _TRANSFORMS)
    return {
        f"it also transforms text with {', '.join(others)}": bool(others),
        "it does not tokenize with SentencePiece": not options.get("src_subword_model"),
    }


def _dropouts(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the dropout rates. Training can change them; the last value counts."""
    dropout = options.get("dropout", [0.3])[-1]
    attention_dropout = options.get("attention_dropout", [0.1])[-1]
    return {
        "dropout": dropout,
        "activation_dropout": dropout,
        "attention_dropout": attention_dropout,
    }


def _tying(options: Mapping[str, Any], same_vocabulary: bool) -> dict[str, bool]:
    """Return our tying options.

    Source and target embeddings are shared only if the output projection is tied.
    """
    shared, tied = (
        bool(options.get(name)) for name in ("share_embeddings", "share_decoder_embeddings")
    )
    return {
        "share_encoder_decoder_embeddings": shared and tied and same_vocabulary,
        "tie_word_embeddings": tied,
    }


def _build(
    fields: dict[str, Any],
    weights: Weights,
    names: Mapping[str, str],
    vocab: Mapping[str, Any],
    special_tokens: Mapping[str, str],
    options: Mapping[str, Any],
    folder: Path,
) -> ConvertedModel:
    """Build the model, with the ids of the special tokens, and the tokenizer of both SentencePiece
    models.
    """
    source, target = vocab["src"], vocab["tgt"]
    start = vocab.get("decoder_start_token", special_tokens["bos_token"])
    missing = sorted({*special_tokens.values(), start} - set(target))
    if missing:
        raise UserError(f"The target vocabulary must contain {', '.join(missing)}.")
    if source.index(special_tokens["pad_token"]) != target.index(special_tokens["pad_token"]):
        raise UserError("Padding must have the same id in both vocabularies.")
    fields |= {
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "normalize_before": True,
        "lm_head_bias": True,
        "attention_bias": any(name.endswith("linear_query.bias") for name in weights),
        "source_eos": False,
        "decoder_start_token_id": target.index(start),
        **{
            f"{name}_token_id": target.index(special_tokens[f"{name}_token"])
            for name in ("pad", "bos", "eos")
        },
    }
    source_spm = options["src_subword_model"]
    target_spm = options.get("tgt_subword_model") or source_spm
    paths = (
        find_sentencepiece_model(source_spm, folder),
        find_sentencepiece_model(target_spm, folder),
    )
    tokenizer = build_sentencepiece_tokenizer(paths, (source, target), special_tokens)
    return ConvertedModel(model_from_opennmt(fields, weights, names), tokenizer)


def model_from_opennmt(
    fields: Mapping[str, Any], weights: Weights, names: Mapping[str, str]
) -> VanillaTransformerForConditionalGeneration:
    """Build the model of our configuration fields, and of weights with the names of a toolkit."""
    unused = r".*(?<!\.weight)(?<!\.bias)"  # positional encodings and other buffers
    model = build_model(
        VanillaTransformerConfig(**fields), weights, partial(_find_weight, names), unused
    )
    # The default of both toolkits: hypotheses are ranked by the mean of their log-probabilities.
    ids = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    model.generation_config = GenerationConfig(
        num_beams=_BEAMS,
        length_penalty=1.0,
        length_penalty_type="power",
        max_new_tokens=_MAX_NEW_TOKENS,
        suppress_tokens=[model.config.pad_token_id],
        **{name: getattr(model.config, name) for name in ids},
    )
    return model


def _find_weight(
    names: Mapping[str, str], name: str, initial: torch.Tensor, weights: ForeignWeights
) -> torch.Tensor:
    """Return the toolkit's tensor for our parameter `name`.

    Shared weights may be saved once or several times.
    """
    others = {
        "model.decoder.embed_tokens.weight": ["model.encoder.embed_tokens.weight"],
        "lm_head.weight": [
            "model.decoder.embed_tokens.weight",
            "model.encoder.embed_tokens.weight",
        ],
    }
    candidates = [rename(candidate, names) for candidate in [name, *others.get(name, [])]]
    if name.endswith(".bias") and not name.endswith("norm.bias") and candidates[0] not in weights:
        return torch.zeros_like(initial)  # a projection without a bias
    return weights.first(*candidates)
