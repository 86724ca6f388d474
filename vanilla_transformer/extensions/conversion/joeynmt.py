"""Convert from JoeyNMT's Transformer, which has the paper's positional encodings.

A JoeyNMT model folder has `config.yaml`, a checkpoint (`best.ckpt`, or the only `*.ckpt`),
`src_vocab.txt` and `trg_vocab.txt`. The SentencePiece models are at the paths in the configuration,
or in the folder under the same names.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, MarianTokenizer

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.errors import MissingFileError, UserError

from .common import (
    build_sentencepiece_tokenizer,
    find_sentencepiece_model,
    flatten,
    load_options,
    option_reasons,
    read_utf8,
    side_reasons,
)
from .formats import Checkpoint, Format, Options, find_renamed, special_ids
from .weight_names import JOEYNMT_NAMES

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
_SPECIAL_SYMBOLS = {"unk": ("<unk>", 0), "pad": ("<pad>", 1), "bos": ("<s>", 2), "eos": ("</s>", 3)}
_SIDES = ("src", "trg")
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
    # Without it JoeyNMT's encoder is pre-norm but has no final layer norm.
    "layer_norm": ["pre", "post"],
    "alpha": [1.0],  # the weight of its residual connections
}
_REQUIRED = {"type": None, "layer_norm": None}
_FIELDS = {
    "d_model": "encoder.hidden_size",
    "encoder_layers": "encoder.num_layers",
    "decoder_layers": "decoder.num_layers",
    "encoder_attention_heads": "encoder.num_heads",
    "decoder_attention_heads": "decoder.num_heads",
    "encoder_ffn_dim": "encoder.ff_size",
    "decoder_ffn_dim": "decoder.ff_size",
    "dropout": "encoder.dropout",
    "attention_dropout": "encoder.dropout",
    "activation_dropout": "encoder.dropout",
}
_DEFAULTS = {"encoder.activation": "relu", "encoder.dropout": 0.1, "encoder.embeddings.scale": None}


def read_joeynmt(folder: str | Path) -> Checkpoint:
    """Read the files of a JoeyNMT folder."""
    folder = Path(folder)
    options = load_options(read_utf8(folder / "config.yaml"), "config.yaml")
    paths = [folder / "best.ckpt"]
    if not paths[0].exists():
        paths = [*folder.glob("*.ckpt")]
    if len(paths) != 1:
        raise MissingFileError(
            f"There must be best.ckpt or one *.ckpt in {folder}, got {len(paths)}."
        )
    weights = load_pickled_checkpoint(paths[0], "JoeyNMT", "model_state")["model_state"]
    vocabularies = []
    for side in _SIDES:
        tokens = read_utf8(folder / f"{side}_vocab.txt").rstrip("\n").split("\n")
        weight = weights.get(f"{side}_embed.lut.weight", tokens)
        if len(tokens) != len(weight):
            requirement = f"{folder}/{side}_vocab.txt must have the model's {len(weight):,} tokens"
            raise UserError(f"{requirement} in a line each, got {len(tokens):,}.")
        vocabularies.append(tokens)
    source, target = vocabularies
    build_tokenizer = partial(_build_tokenizer, folder, options["data"], (source, target))
    return Checkpoint(options, weights, (source, target), build_tokenizer)


def _build_tokenizer(
    folder: Path, data: Options, tokens: tuple[list[str], list[str]]
) -> MarianTokenizer:
    symbols = data.get("special_symbols") or {}
    names = {}
    for name, (token, _) in _SPECIAL_SYMBOLS.items():
        names[f"{name}_token"] = symbols.get(f"{name}_token", token)
    paths = [data[side]["tokenizer_cfg"]["model_file"] for side in _SIDES]
    source, target = (find_sentencepiece_model(path, folder) for path in paths)
    return build_sentencepiece_tokenizer((source, target), tokens, names)


def _reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    model, data = checkpoint.options["model"], checkpoint.options["data"]
    encoder, decoder = (_REQUIRED | model[stack] for stack in ("encoder", "decoder"))
    scales = {bool(stack["embeddings"].get("scale")) for stack in (encoder, decoder)}
    is_shared, is_tied = model.get("tied_embeddings"), model.get("tied_softmax")
    reasons: dict[str, bool] = {}
    for side in _SIDES:
        further = data[side].get("tokenizer_cfg") or {}
        tokenizer = {"level": None, **data[side], **further}
        reasons |= option_reasons(tokenizer, _TOKENIZER_OPTIONS)
    is_untied = bool(is_shared and not is_tied)
    return {
        **reasons,
        **option_reasons(encoder, _OPTIONS),
        **option_reasons(decoder, _OPTIONS),
        **side_reasons(encoder, decoder, ["activation", "hidden_size", "layer_norm"]),
        "only one of the embeddings is scaled": len(scales) > 1,
        "source and target embeddings are shared, but not tied to the softmax": is_untied,
    }


def _fields(checkpoint: Checkpoint) -> Options:
    source, target = checkpoint.tokens
    model = checkpoint.options["model"]
    options = _DEFAULTS | flatten(model)
    is_tied = bool(model.get("tied_softmax"))
    symbols = checkpoint.options["data"].get("special_symbols") or {}
    fields = {ours: options[theirs] for ours, theirs in _FIELDS.items()}
    for name in ("pad", "bos", "eos"):
        default = _SPECIAL_SYMBOLS[name][1]
        fields[f"{name}_token_id"] = symbols.get(f"{name}_id", default)
    # This package shares source and target embeddings only with a tied output projection.
    is_shared = bool(model.get("tied_embeddings")) and is_tied and source == target
    return {
        **fields,
        "decoder_start_token_id": fields["bos_token_id"],
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "share_encoder_decoder_embeddings": is_shared,
        "tie_word_embeddings": is_tied,
        "activation_function": _ACTIVATIONS[str(options["encoder.activation"])],
        "normalize_before": options["encoder.layer_norm"] == "pre",
        "scale_embedding": bool(options["encoder.embeddings.scale"]),
        "attention_bias": True,
        "layer_norm_eps": 1e-6,
    }


def _search(checkpoint: Checkpoint, config: VanillaTransformerConfig) -> GenerationConfig:
    """Return the decoding options of the configuration."""
    testing = checkpoint.options.get("testing") or {}
    alpha, limit = testing.get("beam_alpha", -1), testing.get("max_output_length", -1)
    return GenerationConfig(
        num_beams=testing.get("beam_size", 1),
        length_penalty=max(alpha, 0.0),  # the exponent of the paper's; -1 disables it
        length_penalty_type="wu",
        max_new_tokens=limit if limit > 0 else None,
        max_new_tokens_beyond_source=50 if limit <= 0 else None,
        suppress_tokens=[config.pad_token_id],
        **special_ids(config),
    )


# Its requirements conflict with this package's, so nothing is compared.
JOEYNMT = Format(
    "JoeyNMT",
    read_joeynmt,
    _reasons,
    _fields,
    _search,
    partial(find_renamed, JOEYNMT_NAMES),
    unused=".*",
)
