"""Convert from fairseq's `transformer` and from FSMT, its port in transformers.

Layers and parameter names are the same as in this package. The positional encodings are
Tensor2Tensor's, but the first position is `pad + 1`. They are stored as a table, like learned
positions, which ends at `max_position_embeddings`.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from transformers import (
    FSMTConfig,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    GenerationConfig,
)

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    sinusoidal_positions,
)

from .common import ForeignWeights, option_reasons, read_lines, side_reasons
from .formats import Checkpoint, Format, Options, library_search, read_library_model

# Ids 0 to 3 of every fairseq dictionary.
_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
_BOS, PAD, _EOS, _ = range(len(_SPECIAL_TOKENS))
_TOKEN_IDS = {
    "pad_token_id": PAD,
    "bos_token_id": _BOS,
    "eos_token_id": _EOS,
    "decoder_start_token_id": _EOS,
}
SHARED_FIELDS = (
    *(
        "d_model",
        "encoder_layers",
        "decoder_layers",
        "encoder_attention_heads",
        "decoder_attention_heads",
    ),
    *("encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "dropout", "attention_dropout"),
    *("activation_dropout", "scale_embedding", "max_position_embeddings"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
FIXED_FIELDS = {
    "attention_bias": True,
    "position_embedding_type": "learned",
    "layer_norm_eps": 1e-5,  # the default of torch's LayerNorm, which both use
}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "tanh": "tanh"}
_PROJECTION, _OLD_PROJECTION = "decoder.output_projection.weight", "decoder.embed_out"
# Constants, and parameters of fairseq 0.12's own fast path (`encoder.layers.0.in_proj_weight`),
# which training does not change.
_BUFFERS = re.compile(
    r"(en|de)coder\.(version|embed_positions\._float_tensor)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
# Sinusoids, which are computed, and a projection beside the other one.
_UNUSED = r"(en|de)coder\.embed_positions\.weight|decoder\.(output_projection\.weight|embed_out)"
# The values of options that this package has a counterpart for.
_OPTIONS: dict[str, Sequence[Any]] = {
    "activation_fn": [*_ACTIVATIONS],
    "layernorm_embedding": [False, None],
    "no_token_positional_embeddings": [False, None],
    "adaptive_softmax_cutoff": [None, "", []],
    "cross_self_attention": [False, None],
}
_FIELDS = {
    "d_model": "encoder_embed_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "encoder_attention_heads",
    "decoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "encoder_ffn_embed_dim",
    "decoder_ffn_dim": "decoder_ffn_embed_dim",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
}
_MAX_POSITIONS = 1024
_DEFAULTS = {
    "activation_fn": "relu",
    **dict.fromkeys(["dropout", "attention_dropout", "activation_dropout"], 0.0),
    **dict.fromkeys(["share_all_embeddings", "share_decoder_input_output_embed"], False),
    **dict.fromkeys(["encoder_normalize_before", "no_scale_embedding"], False),
    **dict.fromkeys(["max_source_positions", "max_target_positions"], _MAX_POSITIONS),
}
_DICTIONARY = re.compile(r"dict\.(.+)\.txt")
_ENTRY = r"(.+) \d+(?: #fairseq:overwrite)?"
_MERGE = r"#version.*|\s*(\S+)\s+(\S+)(?:\s+\d+)?\s*"


def load_fsmt_tokenizer(name: str | Path) -> FSMTTokenizer:
    """Load the tokenizer of an FSMT model, with its `sep_token` as the EOS token that the pipeline
    needs.
    """
    tokenizer = FSMTTokenizer.from_pretrained(name)
    tokenizer.eos_token = tokenizer.sep_token
    return tokenizer


def _fsmt_reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    return {f"its padding id is not {PAD}": checkpoint.options["pad_token_id"] != PAD}


def _fsmt_fields(checkpoint: Checkpoint) -> Options:
    options = checkpoint.options
    return {
        **{name: options[name] for name in SHARED_FIELDS},
        **FIXED_FIELDS,
        "vocab_size": options["src_vocab_size"],
        "decoder_vocab_size": options["tgt_vocab_size"],
        "share_encoder_decoder_embeddings": options["tie_word_embeddings"],
        "tie_word_embeddings": options["tie_word_embeddings"],
    }


def read_fairseq(folder: str | Path, languages: Sequence[str] | None = None) -> Checkpoint:
    """Read the files of a fairseq folder.

    Args:
        folder: A checkpoint (`*.pt`), `dict.LANGUAGE.txt` of both languages, and `bpecodes` of
            subword-nmt or fastBPE.
        languages: Source and target language, such as `("en", "de")`. By default the checkpoint's
            own or, if it was trained without `--source-lang` and `--target-lang`, the only
            direction that the sizes of the dictionaries allow.
    """
    folder = Path(folder)
    paths = [*folder.glob("*.pt")]
    if len(paths) != 1:
        raise MissingFileError(
            f"There must be one checkpoint (*.pt) in {folder}, got {len(paths)}."
        )
    content = load_pickled_checkpoint(
        paths[0], "fairseq", "model", allowed_types=[argparse.Namespace]
    )
    config = content.get("cfg") or {}
    options: dict[str, Any] = {}
    for part in (content.get("args"), config.get("task"), config.get("model")):
        options |= vars(part) if isinstance(part, argparse.Namespace) else dict(part or {})
    weights = {}
    for name, tensor in content["model"].items():
        if not _BUFFERS.fullmatch(name):
            weights[name] = tensor.float()
    source, target = languages or _find_languages(folder, options, weights)
    source_tokens = _read_dictionary(folder / f"dict.{source}.txt")
    target_tokens = _read_dictionary(folder / f"dict.{target}.txt")
    tokens = (source_tokens, target_tokens)
    lines = read_lines(folder / "bpecodes", _MERGE, "two pieces that merge, or the version")
    merges = [" ".join(line.groups()) for line in lines if line[1]]
    build_tokenizer = partial(_build_tokenizer, [source, target], tokens, merges)
    return Checkpoint(options, weights, tokens, build_tokenizer)


def _find_languages(
    folder: Path, options: Options, weights: Mapping[str, torch.Tensor]
) -> tuple[str, str]:
    """Return the languages that the options of the checkpoint name, or that only fit the
    dictionaries' sizes.
    """
    source, target = options.get("source_lang"), options.get("target_lang")
    if source and target:
        return source, target
    names = (_DICTIONARY.fullmatch(path.name) for path in sorted(folder.iterdir()))
    sizes = {name[1]: len(_read_dictionary(folder / name[0])) for name in names if name}
    wanted = [len(weights[f"{side}.embed_tokens.weight"]) for side in ("encoder", "decoder")]
    fitting = []
    for source, target in permutations(sizes, 2):
        if [sizes[source], sizes[target]] == wanted:
            fitting.append((source, target))
    if len(fitting) != 1:
        raise UserError(
            "The checkpoint must name its source and its target language, got none, and the "
            f"dictionaries in {folder} ({', '.join(sizes) or 'none'}) fit {len(fitting)} "
            "directions. Name both languages, such as `--languages en de`."
        )
    return fitting[0]


def _read_dictionary(path: Path) -> list[str]:
    """Read the tokens of a dictionary in the order of their ids.

    Each line has a token and its count.
    """
    lines = read_lines(path, _ENTRY, "a token and its count")
    return [*_SPECIAL_TOKENS, *(line[1] for line in lines)]


def _reasons(checkpoint: Checkpoint) -> dict[str, bool]:
    options = checkpoint.options
    encoder = {name.removeprefix("encoder_"): value for name, value in options.items()}
    decoder = {name.removeprefix("decoder_"): value for name, value in options.items()}
    reasons = side_reasons(encoder, decoder, ["embed_dim", "normalize_before", "learned_pos"])
    return reasons | option_reasons(options, _OPTIONS)


def _fields(checkpoint: Checkpoint) -> Options:
    source, target = checkpoint.tokens
    options: Options = {**_DEFAULTS, **checkpoint.options}
    limits = []
    for side in ("source", "target"):
        limits.append(options[f"max_{side}_positions"] or _MAX_POSITIONS)
    is_shared = bool(options["share_all_embeddings"])
    return {
        **{ours: options[theirs] for ours, theirs in _FIELDS.items()},
        **_TOKEN_IDS,
        **FIXED_FIELDS,
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "share_encoder_decoder_embeddings": is_shared,
        "tie_word_embeddings": is_shared or bool(options["share_decoder_input_output_embed"]),
        "activation_function": _ACTIVATIONS[options["activation_fn"]],
        "normalize_before": bool(options["encoder_normalize_before"]),
        "scale_embedding": not options["no_scale_embedding"],
        "max_position_embeddings": min(limits),
    }


def _search(checkpoint: Checkpoint, config: VanillaTransformerConfig) -> GenerationConfig:
    """Return the defaults of `fairseq-generate`: a sentence ends with its fifth finished
    hypothesis, and none is empty.
    """
    search = {"num_beams": 5, "length_penalty": 1.0, "early_stopping": True}
    limits = {"min_new_tokens": 1, "max_new_tokens": 200, "suppress_tokens": [PAD]}
    return GenerationConfig(**search, **limits, **_TOKEN_IDS)


def find_fairseq_weight(
    checkpoint: Checkpoint,
    config: VanillaTransformerConfig,
    name: str,
    initial: torch.Tensor,
    weights: ForeignWeights,
) -> torch.Tensor:
    """Return fairseq's tensor for our parameter `name`."""
    theirs = name.removeprefix("model.")
    if name == "lm_head.weight":
        tied = ["decoder.embed_tokens.weight"] if config.tie_word_embeddings else []
        return weights.first(_PROJECTION, _OLD_PROJECTION, *tied)
    if not theirs.endswith("embed_positions.weight"):
        return weights.first(theirs)
    count = config.max_position_embeddings
    if checkpoint.options.get("encoder_learned_pos"):
        return weights.first(theirs)[PAD + 1 :][:count]
    positions = torch.arange(count) + PAD + 1
    return sinusoidal_positions(positions, config.d_model, "tensor2tensor")


def _build_tokenizer(
    languages: list[str], tokens: tuple[list[str], list[str]], merges: list[str]
) -> FSMTTokenizer:
    """Build FSMT's tokenizer, which applies Moses and then BPE, as is usual for fairseq."""

    def mark(token: str) -> str:
        """Convert fairseq's continuation marks (`ab@@`) to FSMT's end-of-word marks (`ab</w>`)."""
        if token in _SPECIAL_TOKENS:
            return token
        return token.removesuffix("@@") if token.endswith("@@") else f"{token}</w>"

    with tempfile.TemporaryDirectory() as folder:
        files = {"merges_file": str(Path(folder, "merges.txt"))}
        lines = "".join(f"{merge}\n" for merge in merges)
        Path(files["merges_file"]).write_text(lines, encoding="utf-8")
        for name, side in zip(("src_vocab_file", "tgt_vocab_file"), tokens, strict=True):
            files[name] = str(Path(folder, f"{name}.json"))
            entries = {mark(token): index for index, token in enumerate(side)}
            text = json.dumps(entries, ensure_ascii=False)
            Path(files[name]).write_text(text, encoding="utf-8")
        tokenizer = FSMTTokenizer(languages, **files)
    tokenizer.eos_token = tokenizer.sep_token
    return tokenizer


def _build_reference(
    checkpoint: Checkpoint, model: VanillaTransformerForConditionalGeneration
) -> FSMTForConditionalGeneration | None:
    """Build a model of FSMT, transformers' port of fairseq, with the same weights, or return None
    if FSMT does not support the architecture.
    """
    config = model.config
    has_learned_positions = checkpoint.options.get("encoder_learned_pos")
    is_relu = config.activation_function == "relu"
    if config.normalize_before or has_learned_positions or not is_relu:
        return None
    reference = FSMTForConditionalGeneration(
        FSMTConfig(
            src_vocab_size=config.vocab_size,
            tgt_vocab_size=config.decoder_vocab_size,
            tie_word_embeddings=False,  # each weight is loaded below
            forced_eos_token_id=None,
            **{name: getattr(config, name) for name in SHARED_FIELDS},
        )
    ).eval()
    reference.generation_config = GenerationConfig(**_TOKEN_IDS)
    weights = model.state_dict()
    weights[f"model.{_PROJECTION}"] = weights["lm_head.weight"]
    for name, tensor in reference.state_dict().items():
        if "embed_positions" not in name:
            tensor.copy_(weights[name])
    return reference


FSMT = Format(
    "FSMT",
    partial(read_library_model, FSMTForConditionalGeneration, load_fsmt_tokenizer),
    _fsmt_reasons,
    _fsmt_fields,
    library_search,
    find_fairseq_weight,
    _UNUSED,
)
FAIRSEQ = Format(
    "fairseq",
    read_fairseq,
    _reasons,
    _fields,
    _search,
    find_fairseq_weight,
    _UNUSED,
    _build_reference,
)
