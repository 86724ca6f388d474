"""Convert from Marian's own files (`*.npz`, `*.bin`), which OPUS-MT publishes as well.

Matrices are stored as `(inputs, outputs)`. The decoder starts from a zero vector, for which we add
a vocabulary entry that is never generated. The positional encodings are as in Tensor2Tensor, or a
table if Marian learned them.
"""

import re
import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import torch
import yaml
from transformers import GenerationConfig

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import check_unpacked_size
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .common import (
    ForeignWeights,
    build_model,
    build_sentencepiece_tokenizer,
    check_supported,
    load_options,
    option_reasons,
    rename,
)
from .converted_model import ConvertedModel
from .marian_bin import read_bin

OPTIONS_ITEM = "special:model.yml"
_ACTIVATIONS = {
    "relu": "relu",
    "swish": "swish",
    "gelu": "quick_gelu",
}  # Marian's gelu is x · sigmoid(1.702 x)
_LAYER_NORM_EPS = 1e-6
_BANNED_LOGIT = (
    -1e9
)  # the bias of an entry that must not be generated; finite, since 0 · infinity is NaN
NORM_PLACES = ("preprocess", "postprocess", "postprocess-top")
POST_NORM, _PRE_NORM = ("", "dan", ""), ("n", "da", "n")
_OUTPUT = "decoder_ff_logit_out"
_EOS, _PAD = "</s>", "<pad>"
# The values of options that this package has a counterpart for.
OPTIONS: dict[str, Sequence[Any]] = {
    "type": ["transformer"],
    "transformer-decoder-autoreg": ["self-attention"],
    "transformer-ffn-activation": [*_ACTIVATIONS],
    "transformer-postprocess-emb": ["", "d", None],
    "transformer-no-projection": [False, None],
    "transformer-ffn-depth": [2],
    "transformer-decoder-ffn-depth": [2, 0, None],
}
# Marian's names of our parameters, see `rename`: `encoder_l1_self_Wq` is the query projection of
# the first layer.
NAMES: dict[str, Any] = {
    r"^model\.": "",
    r"\.layers\.(\d+)\.": lambda match: f"_l{int(match[1]) + 1}_",
    r"\.embed_tokens\.weight": "_Wemb",
    r"lm_head\.weight": "decoder_Wemb",
    r"self_attn": "self",
    r"encoder_attn": "context",
    r"(self|context)_layer_norm": r"\1_Wo_ln",
    r"final_layer_norm": "ffn_ffn_ln",
    r"coder\.layer_norm": "coder_top_ln",
    r"ln\.weight": "ln_scale",
    r"ln\.bias": "ln_bias",
    r"fc(\d)\.weight": r"ffn_W\1",
    r"fc(\d)\.bias": r"ffn_b\1",
    r"\.([qkvo])\w*\.weight": r"_W\1",
    r"\.([qkvo])\w*\.bias": r"_b\1",
}


class MarianFiles(NamedTuple):
    """Contents of a Marian folder.

    Weights have Marian's names; tokens are in the order of their ids.
    """

    options: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    tokens: list[str]
    source_spm: Path
    target_spm: Path


def read_marian_npz(folder: str | Path) -> ConvertedModel:
    """Read a model in Marian's own format, with which this package has nothing to compare it.

    Args:
        folder: The weights (`*.npz`, or else `model.bin` or one `model*.bin`), the vocabulary
            (`*.yml` other than `decoder.yml`), `source.spm` and `target.spm`. If Marian used
            SentencePiece as its vocabulary, `vocab.spm` replaces the latter three.
    """
    files = read_marian_folder(folder)
    model = model_from_marian_npz(files)
    tokens = [*files.tokens, _PAD]
    tokenizer = build_sentencepiece_tokenizer(
        (files.source_spm, files.target_spm), (tokens, tokens), {}
    )
    return ConvertedModel(model, tokenizer)


def read_marian_folder(folder: str | Path) -> MarianFiles:
    """Read the files of a Marian folder."""
    folder = Path(folder)
    path = _find_one(folder, "*.npz", "model.bin", "model*.bin")
    if path.suffix == ".npz":
        check_unpacked_size(path)
        with np.load(path, allow_pickle=False) as content:
            weights = dict(content)
    else:
        weights = read_bin(path)
    if OPTIONS_ITEM not in weights:
        raise UserError(
            f"The weights in {folder} must contain Marian's options ({OPTIONS_ITEM}), but do not."
        )
    content = weights.pop(OPTIONS_ITEM).tobytes().rstrip(b"\0").decode()
    options = load_options(content, OPTIONS_ITEM)
    single = folder / "vocab.spm"
    if single.exists():
        model = sentencepiece.SentencePieceProcessor(model_file=str(single))
        return MarianFiles(
            options, weights, [model.id_to_piece(i) for i in range(len(model))], single, single
        )
    sides = [folder / f"{side}.spm" for side in ("source", "target")]
    for path in sides:
        if not path.exists():
            raise MissingFileError(f"There is neither {path.name} nor vocab.spm in {folder}.")
    return MarianFiles(options, weights, _read_vocabulary(folder), *sides)


def _find_one(folder: Path, *patterns: str, exclude: str = "") -> Path:
    """Find the file of the first pattern that some file has."""
    paths: list[Path] = []
    for pattern in patterns:
        paths = [path for path in folder.glob(pattern) if path.name != exclude]
        if paths:
            break
    if len(paths) != 1:
        raise MissingFileError(
            f"There must be one file {' or '.join(patterns)} in {folder}, got {len(paths)}."
        )
    return paths[0]


def _read_vocabulary(folder: Path) -> list[str]:
    """Read the tokens in the order of their ids.

    Marian writes `token: id`, or `? token` and `: id` on two lines, and does not quote every token
    as YAML requires.
    """
    entries: dict[int, str] = {}
    key = ""
    path = _find_one(folder, "*.yml", exclude="decoder.yml")
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("? "):
            key = line[2:]
        elif line.strip():
            name, _, number = line.rpartition(":")
            key = name or key
            if not re.fullmatch(r"\s*\d{1,9}\s*", number):
                requirement = f"{path} must have a token, a colon and its number in each line"
                raise UserError(f"{requirement}, got {reprlib.repr(line)}.")
            entries[int(number)] = str(yaml.safe_load(key)) if key[:1] in "\"'" else key
    if sorted(entries) != list(range(len(entries))):
        raise UserError(
            f"The vocabulary in {folder} must have each id from 0 to {len(entries) - 1} once."
        )
    return [entries[index] for index in range(len(entries))]


def model_from_marian_npz(files: MarianFiles) -> VanillaTransformerForConditionalGeneration:
    """Build the model of Marian's files, with one more vocabulary entry."""
    options = files.options
    norm = tuple(options.get(f"transformer-{place}") or "" for place in NORM_PLACES)
    check_supported(
        "This package",
        {
            **option_reasons(
                {"type": None, "transformer-ffn-activation": None, **options}, OPTIONS
            ),
            f"its normalization is {norm}, not {POST_NORM} or {_PRE_NORM}": norm
            not in (POST_NORM, _PRE_NORM),
            "source and target have different vocabularies": len({*options.get("dim-vocabs", [0])})
            > 1,
            f"its vocabulary has no {_EOS}": _EOS not in files.tokens,
        },
    )
    pad, eos = len(files.tokens), files.tokens.index(_EOS)
    ids = {
        "pad_token_id": pad,
        "bos_token_id": None,
        "eos_token_id": eos,
        "decoder_start_token_id": pad,
    }
    # `tied-embeddings-src` ties only both embeddings.
    stored = any(f"{_OUTPUT}_{name}" in files.weights for name in ("W", "Wt"))
    tied = not stored or any(
        options.get(name) for name in ("tied-embeddings", "tied-embeddings-all")
    )
    positions: dict[str, Any] = {"sinusoid_layout": "tensor2tensor"}
    if "Wpos" in files.weights:
        positions = {
            "position_embedding_type": "learned",
            "max_position_embeddings": len(files.weights["Wpos"]),
        }
    config = VanillaTransformerConfig(
        vocab_size=pad + 1,
        d_model=options["dim-emb"],
        encoder_layers=options["enc-depth"],
        decoder_layers=options["dec-depth"],
        encoder_attention_heads=options["transformer-heads"],
        decoder_attention_heads=options["transformer-heads"],
        encoder_ffn_dim=options["transformer-dim-ffn"],
        decoder_ffn_dim=options.get("transformer-decoder-dim-ffn")
        or options["transformer-dim-ffn"],
        activation_function=_ACTIVATIONS[options["transformer-ffn-activation"]],
        normalize_before=norm == _PRE_NORM,
        share_encoder_decoder_embeddings="Wemb" in files.weights,
        tie_word_embeddings=tied,
        attention_bias=True,
        lm_head_bias=True,
        **positions,
        layer_norm_eps=_LAYER_NORM_EPS,
        **ids,
    )
    model = build_model(
        config, files.weights, partial(_find_weight, files, tied), unused="special:.*|.*_QuantMultA"
    )
    model.generation_config = GenerationConfig(
        num_beams=6, length_penalty=1.0, max_new_tokens=512, **ids
    )
    return model


def _find_weight(
    files: MarianFiles, tied: bool, name: str, _: torch.Tensor, weights: ForeignWeights
) -> torch.Tensor:
    """Return Marian's tensor for our parameter `name`, with a row or a bias for the added entry."""
    theirs = rename(name, NAMES)
    if name == "lm_head.weight" and not tied:
        transposed = f"{_OUTPUT}_W" in weights
        return _add_zero_row(
            weights.first(f"{_OUTPUT}_W").T if transposed else weights.first(f"{_OUTPUT}_Wt")
        )
    if name == "lm_head.bias":
        omitted = files.options.get("output-omit-bias")
        bias = (
            torch.zeros(len(files.tokens)) if omitted else weights.first(f"{_OUTPUT}_b").flatten()
        )
        return torch.cat([bias, torch.tensor([_BANNED_LOGIT])])
    if theirs.endswith("_Wemb"):  # also the tied output projection
        return _add_zero_row(weights.first("Wemb", theirs))
    if "embed_positions" in name:
        return weights.first("Wpos")
    if "_ln_" in theirs:
        return weights.first(f"{theirs}_pre", theirs).flatten()
    return weights.first(theirs).flatten() if name.endswith(".bias") else weights.first(theirs).T


def _add_zero_row(matrix: torch.Tensor) -> torch.Tensor:
    return torch.cat([matrix, torch.zeros(1, matrix.shape[1])])
