"""Convert from fairseq's `transformer` and from FSMT, its port in transformers.

Layers and parameter names are the same as in this package. The positional encodings are
Tensor2Tensor's, but the first position is `pad + 1`. They are stored as a table, like learned
positions, which ends at `max_position_embeddings`.
"""

import argparse
import copy
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

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

from .common import (
    ForeignWeights,
    build_model,
    check_supported,
    load_model,
    option_reasons,
    read_lines,
    side_reasons,
)
from .converted_model import ConvertedModel

Weights = Mapping[str, torch.Tensor]
_LAYER_NORM_EPS = 1e-5  # the default of torch's LayerNorm, which both use
_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3 of every fairseq dictionary
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
    "layer_norm_eps": _LAYER_NORM_EPS,
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
_DICTIONARY = re.compile(r"dict\.(.+)\.txt")
_ENTRY = r"(.+) \d+(?: #fairseq:overwrite)?"
_MERGE = r"#version.*|\s*(\S+)\s+(\S+)(?:\s+\d+)?\s*"


def read_fsmt(name: str | Path) -> ConvertedModel:
    """Read an FSMT model, such as `facebook/wmt19-en-de`.

    Its tokenizer and generation configuration stay the same.
    """
    original = load_model(FSMTForConditionalGeneration, name)
    return ConvertedModel(model_from_fsmt(original), load_fsmt_tokenizer(name), original)


def load_fsmt_tokenizer(name: str | Path) -> FSMTTokenizer:
    """Load the tokenizer of an FSMT model, with its `sep_token` as the EOS token that the pipeline
    needs.
    """
    tokenizer = FSMTTokenizer.from_pretrained(name)
    tokenizer.eos_token = tokenizer.sep_token
    return tokenizer


def model_from_fsmt(
    original: FSMTForConditionalGeneration,
) -> VanillaTransformerForConditionalGeneration:
    """Return the same model with copies of the parameters."""
    theirs = original.config
    check_supported("This package", {f"its padding id is not {PAD}": theirs.pad_token_id != PAD})
    config = VanillaTransformerConfig(
        vocab_size=theirs.src_vocab_size,
        decoder_vocab_size=theirs.tgt_vocab_size,
        share_encoder_decoder_embeddings=theirs.tie_word_embeddings,
        tie_word_embeddings=theirs.tie_word_embeddings,
        **{name: getattr(theirs, name) for name in SHARED_FIELDS},
        **FIXED_FIELDS,
    )
    weights = {
        name.removeprefix("model."): tensor for name, tensor in original.state_dict().items()
    }
    model = load_fairseq_weights(config, weights)
    model.generation_config = copy.deepcopy(original.generation_config)
    return model


class FairseqCheckpoint(NamedTuple):
    """Contents of a fairseq folder: arguments and weights of the checkpoint, two dictionaries and
    BPE merges.
    """

    arguments: Mapping[str, Any]
    weights: Weights
    languages: tuple[str, str]
    source_tokens: list[str]
    target_tokens: list[str]
    merges: list[str]


def read_fairseq(folder: str | Path, languages: Sequence[str] | None = None) -> ConvertedModel:
    """Read a checkpoint of fairseq's `transformer`.

    The generation configuration has the defaults of `fairseq-generate`. The original is FSMT,
    transformers' port of fairseq, with the same weights, unless FSMT does not support the model
    (pre-norm, learned positions, other activation functions).

    Args:
        folder: A checkpoint (`*.pt`), `dict.LANGUAGE.txt` of both languages, and `bpecodes` of
            subword-nmt or fastBPE.
        languages: Source and target language, such as `("en", "de")`. By default the checkpoint's
            own or, if it was trained without `--source-lang` and `--target-lang`, the only
            direction that the sizes of the dictionaries allow.
    """
    checkpoint = read_fairseq_folder(folder, languages)
    model = model_from_fairseq(checkpoint)
    return ConvertedModel(
        model, _build_tokenizer(checkpoint), _build_fsmt_reference(checkpoint, model)
    )


def read_fairseq_folder(
    folder: str | Path, languages: Sequence[str] | None = None
) -> FairseqCheckpoint:
    """Read the files of a fairseq folder."""
    folder = Path(folder)
    checkpoints = sorted(folder.glob("*.pt"))
    if len(checkpoints) != 1:
        raise MissingFileError(
            f"There must be one checkpoint (*.pt) in {folder}, got {len(checkpoints)}."
        )
    content = load_pickled_checkpoint(
        checkpoints[0], "fairseq", "model", allowed_types=[argparse.Namespace]
    )
    config = content.get("cfg") or {}
    arguments: dict[str, Any] = {}
    for part in (content.get("args"), config.get("task"), config.get("model")):
        arguments |= vars(part) if isinstance(part, argparse.Namespace) else dict(part or {})
    weights = {
        name: tensor.float()
        for name, tensor in content["model"].items()
        if not _BUFFERS.fullmatch(name)
    }
    source, target = languages or _find_languages(folder, arguments, weights)
    source_tokens, target_tokens = (
        _read_dictionary(folder / f"dict.{language}.txt") for language in (source, target)
    )
    merges = read_lines(folder / "bpecodes", _MERGE, "two pieces that merge, or the version")
    return FairseqCheckpoint(
        arguments,
        weights,
        (source, target),
        source_tokens,
        target_tokens,
        [" ".join(merge.groups()) for merge in merges if merge[1]],
    )


def _find_languages(
    folder: Path, arguments: Mapping[str, Any], weights: Weights
) -> tuple[str, str]:
    """Return the languages that the arguments of the checkpoint name, or that only fit the
    dictionaries' sizes.
    """
    source, target = arguments.get("source_lang"), arguments.get("target_lang")
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
    return [
        *_SPECIAL_TOKENS,
        *(line[1] for line in read_lines(path, _ENTRY, "a token and its count")),
    ]


def model_from_fairseq(checkpoint: FairseqCheckpoint) -> VanillaTransformerForConditionalGeneration:
    """Build the model of a checkpoint."""
    arguments = checkpoint.arguments
    encoder = {name.removeprefix("encoder_"): value for name, value in arguments.items()}
    decoder = {name.removeprefix("decoder_"): value for name, value in arguments.items()}
    reasons = side_reasons(encoder, decoder, ["embed_dim", "normalize_before", "learned_pos"])
    check_supported("This package", reasons | option_reasons(arguments, _OPTIONS))
    learned = bool(arguments.get("encoder_learned_pos"))
    config = VanillaTransformerConfig(
        vocab_size=len(checkpoint.source_tokens),
        decoder_vocab_size=len(checkpoint.target_tokens),
        share_encoder_decoder_embeddings=bool(arguments.get("share_all_embeddings")),
        tie_word_embeddings=bool(
            arguments.get("share_all_embeddings")
            or arguments.get("share_decoder_input_output_embed")
        ),
        d_model=arguments["encoder_embed_dim"],
        **{f"{side}_layers": arguments[f"{side}_layers"] for side in ("encoder", "decoder")},
        **{
            f"{side}_attention_heads": arguments[f"{side}_attention_heads"]
            for side in ("encoder", "decoder")
        },
        **{
            f"{side}_ffn_dim": arguments[f"{side}_ffn_embed_dim"] for side in ("encoder", "decoder")
        },
        activation_function=_ACTIVATIONS[arguments.get("activation_fn", "relu")],
        **{
            name: arguments.get(name, 0.0)
            for name in ("dropout", "attention_dropout", "activation_dropout")
        },
        normalize_before=bool(arguments.get("encoder_normalize_before")),
        scale_embedding=not arguments.get("no_scale_embedding"),
        max_position_embeddings=min(
            arguments.get(f"max_{side}_positions") or 1024 for side in ("source", "target")
        ),
        **_TOKEN_IDS,
        **FIXED_FIELDS,
    )
    model = load_fairseq_weights(config, checkpoint.weights, learned)
    # The defaults of `fairseq-generate`: a sentence ends with its fifth finished hypothesis, and
    # none is empty.
    search = {"num_beams": 5, "length_penalty": 1.0, "early_stopping": True}
    limits = {"min_new_tokens": 1, "max_new_tokens": 200, "suppress_tokens": [PAD]}
    model.generation_config = GenerationConfig(**search, **limits, **_TOKEN_IDS)
    return model


def load_fairseq_weights(
    config: VanillaTransformerConfig, weights: Weights, learned: bool = False
) -> VanillaTransformerForConditionalGeneration:
    """Build a model of weights that have fairseq's names."""
    count = config.max_position_embeddings

    def find(name: str, _: torch.Tensor, weights: ForeignWeights) -> torch.Tensor:
        theirs = name.removeprefix("model.")
        if name == "lm_head.weight":
            tied = ["decoder.embed_tokens.weight"] if config.tie_word_embeddings else []
            return weights.first(_PROJECTION, _OLD_PROJECTION, *tied)
        if not theirs.endswith("embed_positions.weight"):
            return weights.first(theirs)
        if learned:
            return weights.first(theirs)[PAD + 1 :][:count]
        return sinusoidal_positions(torch.arange(count) + PAD + 1, config.d_model, "tensor2tensor")

    return build_model(config, weights, find, unused=_UNUSED)


def _build_tokenizer(checkpoint: FairseqCheckpoint) -> FSMTTokenizer:
    """Build FSMT's tokenizer, which applies Moses and then BPE, as is usual for fairseq."""

    def mark(token: str) -> str:
        """Convert fairseq's continuation marks (`ab@@`) to FSMT's end-of-word marks (`ab</w>`)."""
        if token in _SPECIAL_TOKENS:
            return token
        return token.removesuffix("@@") if token.endswith("@@") else f"{token}</w>"

    sides = {"src_vocab_file": checkpoint.source_tokens, "tgt_vocab_file": checkpoint.target_tokens}
    with tempfile.TemporaryDirectory() as folder:
        files = {"merges_file": str(Path(folder, "merges.txt"))}
        Path(files["merges_file"]).write_text(
            "".join(f"{merge}\n" for merge in checkpoint.merges), encoding="utf-8"
        )
        for name, tokens in sides.items():
            files[name] = str(Path(folder, f"{name}.json"))
            entries = {mark(token): index for index, token in enumerate(tokens)}
            Path(files[name]).write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
        tokenizer = FSMTTokenizer(list(checkpoint.languages), **files)
    tokenizer.eos_token = tokenizer.sep_token
    return tokenizer


def _build_fsmt_reference(
    checkpoint: FairseqCheckpoint, model: VanillaTransformerForConditionalGeneration
) -> FSMTForConditionalGeneration | None:
    """Build an FSMT model with the same weights, or return None if FSMT does not support the
    architecture.
    """
    config = model.config
    if (
        config.normalize_before
        or checkpoint.arguments.get("encoder_learned_pos")
        or config.activation_function != "relu"
    ):
        return None
    reference = FSMTForConditionalGeneration(
        FSMTConfig(
            langs=list(checkpoint.languages),
            src_vocab_size=config.vocab_size,
            tgt_vocab_size=config.decoder_vocab_size,
            tie_word_embeddings=False,  # each weight is loaded below
            forced_eos_token_id=None,
            **{name: getattr(config, name) for name in SHARED_FIELDS},
        )
    ).eval()
    reference.generation_config = GenerationConfig(**_TOKEN_IDS)
    ours = model.state_dict()
    names = {f"model.{_PROJECTION}": "lm_head.weight"}
    reference.load_state_dict(
        {
            name: tensor if "embed_positions" in name else ours[names.get(name, name)]
            for name, tensor in reference.state_dict().items()
        }
    )
    return reference
