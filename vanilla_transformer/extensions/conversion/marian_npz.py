"""Convert from Marian's own files (`*.npz`, `*.bin`), which OPUS-MT publishes as well.

Matrices are stored as `(inputs, outputs)`. The decoder starts from a zero vector, for which we add
a vocabulary entry that is never generated. The positional encodings are as in Tensor2Tensor, or a
table if Marian learned them.
"""

import re
import reprlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from transformers import GenerationConfig

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import check_unpacked_size
from vanilla_transformer.errors import MissingFileError, UserError

from .common import (
    ForeignWeights,
    build_sentencepiece_tokenizer,
    load_options,
    option_reasons,
    rename,
)
from .formats import Checkpoint, Format, Options, special_ids
from .marian_bin import read_bin
from .weight_names import MARIAN_NAMES

OPTIONS_ITEM = "special:model.yml"
# Marian's gelu is x · sigmoid(1.702 x).
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "quick_gelu"}
# The bias of an entry that must not be generated; finite, since 0 · infinity is NaN
_BANNED_LOGIT = -1e9
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
_FIELDS = {
    "d_model": "dim-emb",
    "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
    "encoder_attention_heads": "transformer-heads",
    "decoder_attention_heads": "transformer-heads",
    "encoder_ffn_dim": "transformer-dim-ffn",
}


def read_marian_folder(folder: str | Path) -> Checkpoint:
    """Read the files of a Marian folder.

    Args:
        folder: The weights (`*.npz`, or else `model.bin` or one `model*.bin`), the vocabulary
            (`*.yml` other than `decoder.yml`), `source.spm` and `target.spm`. If Marian used
            SentencePiece as its vocabulary, `vocab.spm` replaces the latter three.
    """
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
    text = weights.pop(OPTIONS_ITEM).tobytes().rstrip(b"\0").decode()
    options = load_options(text, OPTIONS_ITEM)
    single = folder / "vocab.spm"
    if single.exists():
        model = sentencepiece.SentencePieceProcessor(model_file=str(single))
        tokens = [model.id_to_piece(index) for index in range(len(model))]
        paths = single, single
    else:
        paths = folder / "source.spm", folder / "target.spm"
        for path in paths:
            if not path.exists():
                raise MissingFileError(f"There is neither {path.name} nor vocab.spm in {folder}.")
        tokens = read_vocabulary(folder)
    entries = [*tokens, _PAD]
    build_tokenizer = partial(build_sentencepiece_tokenizer, paths, (entries, entries), {})
    return Checkpoint(options, weights, (tokens, tokens), build_tokenizer)


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


def read_vocabulary(folder: Path) -> list[str]:
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


def _reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    options = checkpoint.options
    norms = tuple(options.get(f"transformer-{place}") or "" for place in NORM_PLACES)
    required = {"type": None, "transformer-ffn-activation": None}
    is_other = norms not in (POST_NORM, _PRE_NORM)
    sizes = {*options.get("dim-vocabs", [0])}
    return {
        **option_reasons({**required, **options}, OPTIONS),
        f"its normalization is {norms}, not {POST_NORM} or {_PRE_NORM}": is_other,
        "source and target have different vocabularies": len(sizes) > 1,
        f"its vocabulary has no {_EOS}": _EOS not in checkpoint.tokens[0],
    }


def _fields(checkpoint: Checkpoint) -> Options:
    """Return the fields of a model with one more vocabulary entry."""
    options, weights = checkpoint.options, checkpoint.weights
    tokens = checkpoint.tokens[0]
    positions: Options = {"sinusoid_layout": "tensor2tensor"}
    if "Wpos" in weights:
        count = len(weights["Wpos"])
        positions = {"position_embedding_type": "learned", "max_position_embeddings": count}
    ffn_dim = options["transformer-dim-ffn"]
    # `tied-embeddings-src` ties only both embeddings.
    is_tied = bool(options.get("tied-embeddings") or options.get("tied-embeddings-all"))
    has_projection = f"{_OUTPUT}_W" in weights or f"{_OUTPUT}_Wt" in weights
    return {
        **{ours: options[theirs] for ours, theirs in _FIELDS.items()},
        **positions,
        "vocab_size": len(tokens) + 1,
        "decoder_ffn_dim": options.get("transformer-decoder-dim-ffn") or ffn_dim,
        "activation_function": _ACTIVATIONS[options["transformer-ffn-activation"]],
        "normalize_before": bool(options.get("transformer-preprocess")),
        "share_encoder_decoder_embeddings": "Wemb" in weights,
        "tie_word_embeddings": is_tied or not has_projection,
        "attention_bias": True,
        "lm_head_bias": True,
        "layer_norm_eps": 1e-6,
        "pad_token_id": len(tokens),
        "bos_token_id": None,
        "eos_token_id": tokens.index(_EOS),
        "decoder_start_token_id": len(tokens),
    }


def _search(checkpoint: Checkpoint, config: VanillaTransformerConfig) -> GenerationConfig:
    ids = special_ids(config)
    return GenerationConfig(num_beams=6, length_penalty=1.0, max_new_tokens=512, **ids)


def _find_weight(
    checkpoint: Checkpoint,
    config: VanillaTransformerConfig,
    name: str,
    initial: torch.Tensor,
    weights: ForeignWeights,
) -> torch.Tensor:
    """Return Marian's tensor for our parameter `name`, with a row or a bias for the added entry."""
    theirs = rename(name, MARIAN_NAMES)
    if name == "lm_head.weight" and not config.tie_word_embeddings:
        if f"{_OUTPUT}_W" in weights:
            return _add_zero_row(weights.first(f"{_OUTPUT}_W").T)
        return _add_zero_row(weights.first(f"{_OUTPUT}_Wt"))
    if name == "lm_head.bias":
        bias = torch.zeros(len(checkpoint.tokens[0]))
        if not checkpoint.options.get("output-omit-bias"):
            bias = weights.first(f"{_OUTPUT}_b").flatten()
        return torch.cat([bias, torch.tensor([_BANNED_LOGIT])])
    if theirs.endswith("_Wemb"):  # also the tied output projection
        return _add_zero_row(weights.first("Wemb", theirs))
    if "embed_positions" in name:
        return weights.first("Wpos")
    if "_ln_" in theirs:
        return weights.first(f"{theirs}_pre", theirs).flatten()
    if name.endswith(".bias"):
        return weights.first(theirs).flatten()
    return weights.first(theirs).T


def _add_zero_row(matrix: torch.Tensor) -> torch.Tensor:
    return torch.cat([matrix, torch.zeros(1, matrix.shape[1])])


# Nothing runs Marian's own files here, so nothing is compared.
MARIAN_NPZ = Format(
    "Marian",
    read_marian_folder,
    _reasons,
    _fields,
    _search,
    _find_weight,
    unused="special:.*|.*_QuantMultA",
)
