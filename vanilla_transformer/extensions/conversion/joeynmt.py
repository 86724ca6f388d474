"""Convert from JoeyNMT's Transformer, which has the paper's positional encodings.

A JoeyNMT model folder has `config.yaml`, a checkpoint (`best.ckpt`, or the only `*.ckpt`),
`src_vocab.txt` and `trg_vocab.txt`. The SentencePiece models are at the paths in the configuration,
or in the folder under the same names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .common import (
    build_model,
    build_sentencepiece_tokenizer,
    check_supported,
    find_sentencepiece_model,
    load_options,
    option_reasons,
    read_utf8,
    rename,
    side_reasons,
)
from .converted_model import ConvertedModel

Weights = Mapping[str, torch.Tensor]
_LAYER_NORM_EPS = 1e-6
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
_SPECIAL_SYMBOLS = {"unk": ("<unk>", 0), "pad": ("<pad>", 1), "bos": ("<s>", 2), "eos": ("</s>", 3)}
# JoeyNMT's names of our parameters, see `rename`.
NAMES = {
    r"^model\.": "",
    r"^encoder\.embed_tokens": "src_embed.lut",
    r"^decoder\.embed_tokens": "trg_embed.lut",
    r"^lm_head": "decoder.output_layer",
    r"^(encoder.*)\.self_attn_layer_norm": r"\1.layer_norm",
    r"^(decoder.*)\.self_attn_layer_norm": r"\1.x_layer_norm",
    r"\.encoder_attn_layer_norm": ".dec_layer_norm",
    r"^(encoder.*)\.self_attn": r"\1.src_src_att",
    r"^(decoder.*)\.self_attn": r"\1.trg_trg_att",
    r"\.encoder_attn": ".src_trg_att",
    r"\.([qkv])_proj": r".\1_layer",
    r"\.out_proj": ".output_layer",
    r"\.fc1": ".feed_forward.pwff_layer.0",
    r"\.fc2": ".feed_forward.pwff_layer.3",
    r"\.final_layer_norm": ".feed_forward.layer_norm",
}
# The values of options that this package has a counterpart for: of the tokenizer of a side, and of
# a stack.
_TOKENIZER_OPTIONS: dict[str, Sequence[Any]] = {
    "level": ["bpe"],
    "tokenizer_type": ["sentencepiece"],
    "bpe_type": ["sentencepiece"],
    "lowercase": [False, None],
    "normalize": [False, None],
    "pretokenizer": ["none"],
}
_OPTIONS: dict[str, Sequence[Any]] = {
    "type": ["transformer"],
    "activation": [*_ACTIVATIONS],
    "layer_norm": [
        "pre",
        "post",
    ],  # without it JoeyNMT's encoder is pre-norm but has no final layer norm
    "alpha": [1.0],  # the weight of its residual connections
}


class JoeyNMTModel(NamedTuple):
    """Contents of a JoeyNMT folder.

    Weights have JoeyNMT's names; tokens are in the order of their ids.
    """

    config: Mapping[str, Any]
    weights: Weights
    source_tokens: list[str]
    target_tokens: list[str]
    source_spm: Path
    target_spm: Path


def read_joeynmt(folder: str | Path) -> ConvertedModel:
    """Read a JoeyNMT folder, with the decoding options of its configuration.

    The original is None, since JoeyNMT's requirements conflict with this package's.
    """
    joey = read_joeynmt_folder(folder)
    model = model_from_joeynmt(joey)
    symbols = joey.config["data"].get("special_symbols") or {}
    names = {
        f"{name}_token": symbols.get(f"{name}_token", default)
        for name, (default, _) in _SPECIAL_SYMBOLS.items()
    }
    sides = (joey.source_spm, joey.target_spm), (joey.source_tokens, joey.target_tokens)
    return ConvertedModel(model, build_sentencepiece_tokenizer(*sides, names))


def read_joeynmt_folder(folder: str | Path) -> JoeyNMTModel:
    """Read the files of a JoeyNMT folder."""
    folder = Path(folder)
    config = load_options(read_utf8(folder / "config.yaml"), "config.yaml")
    sides = [config["data"][side] for side in ("src", "trg")]
    options = [{"level": None, **side, **(side.get("tokenizer_cfg") or {})} for side in sides]
    source_reasons, target_reasons = (option_reasons(side, _TOKENIZER_OPTIONS) for side in options)
    check_supported("This package", source_reasons | target_reasons)
    checkpoints = [path for path in [folder / "best.ckpt"] if path.exists()] or sorted(
        folder.glob("*.ckpt")
    )
    if len(checkpoints) != 1:
        raise MissingFileError(
            f"There must be best.ckpt or one *.ckpt in {folder}, got {len(checkpoints)}."
        )
    content = load_pickled_checkpoint(checkpoints[0], "JoeyNMT", "model_state")
    files = [read_utf8(folder / f"{side}_vocab.txt") for side in ("src", "trg")]
    source, target = (text.rstrip("\n").split("\n") for text in files)
    for side, tokens in (("src", source), ("trg", target)):
        weight = content["model_state"].get(f"{side}_embed.lut.weight", tokens)
        if len(tokens) != len(weight):
            requirement = f"{folder}/{side}_vocab.txt must have the model's {len(weight):,} tokens"
            raise UserError(f"{requirement} in a line each, got {len(tokens):,}.")
    spms = (find_sentencepiece_model(side["tokenizer_cfg"]["model_file"], folder) for side in sides)
    return JoeyNMTModel(config, content["model_state"], source, target, *spms)


def model_from_joeynmt(joey: JoeyNMTModel) -> VanillaTransformerForConditionalGeneration:
    """Build the same model."""
    options = joey.config["model"]
    encoder, decoder = options["encoder"], options["decoder"]
    required = {"type": None, "layer_norm": None}
    scales = {bool(side["embeddings"].get("scale")) for side in (encoder, decoder)}
    shared, tied = (bool(options.get(f"tied_{name}")) for name in ("embeddings", "softmax"))
    check_supported(
        "This package",
        {
            **option_reasons(required | {**encoder}, _OPTIONS),
            **option_reasons(required | {**decoder}, _OPTIONS),
            **side_reasons(encoder, decoder, ["activation", "hidden_size", "layer_norm"]),
            "only one of the embeddings is scaled": len(scales) > 1,
            "source and target embeddings are shared, but not tied to the softmax": shared
            and not tied,
        },
    )
    symbols = joey.config["data"].get("special_symbols") or {}
    special = {
        name: symbols.get(f"{name}_id", default) for name, (_, default) in _SPECIAL_SYMBOLS.items()
    }
    ids = {f"{name}_token_id": special[name] for name in ("pad", "bos", "eos")}
    ids["decoder_start_token_id"] = special["bos"]
    config = VanillaTransformerConfig(
        vocab_size=len(joey.source_tokens),
        decoder_vocab_size=len(joey.target_tokens),
        # This package shares source and target embeddings only if the output projection is tied as
        # well.
        share_encoder_decoder_embeddings=shared
        and tied
        and joey.source_tokens == joey.target_tokens,
        tie_word_embeddings=tied,
        d_model=encoder["hidden_size"],
        encoder_layers=encoder["num_layers"],
        decoder_layers=decoder["num_layers"],
        encoder_attention_heads=encoder["num_heads"],
        decoder_attention_heads=decoder["num_heads"],
        encoder_ffn_dim=encoder["ff_size"],
        decoder_ffn_dim=decoder["ff_size"],
        activation_function=_ACTIVATIONS[encoder.get("activation", "relu")],
        dropout=encoder.get("dropout", 0.1),
        attention_dropout=encoder.get("dropout", 0.1),
        activation_dropout=encoder.get("dropout", 0.1),
        normalize_before=encoder.get("layer_norm") == "pre",
        scale_embedding=bool(encoder["embeddings"].get("scale")),
        attention_bias=True,
        layer_norm_eps=_LAYER_NORM_EPS,
        **ids,
    )
    model = build_model(
        config,
        joey.weights,
        lambda name, _, weights: weights.first(rename(name, NAMES)),
        unused=".*",
    )
    testing = joey.config.get("testing") or {}
    alpha, limit = testing.get("beam_alpha", -1), testing.get("max_output_length", -1)
    model.generation_config = GenerationConfig(
        num_beams=testing.get("beam_size", 1),
        length_penalty=alpha if alpha > 0 else 0.0,  # the exponent of the paper's; -1 disables it
        length_penalty_type="wu",
        max_new_tokens=limit if limit > 0 else None,
        max_new_tokens_beyond_source=50 if limit <= 0 else None,
        suppress_tokens=[ids["pad_token_id"]],
        **ids,
    )
    return model
