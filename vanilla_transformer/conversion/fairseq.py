"""
fairseq's `transformer`, and FSMT, which is its form in transformers.

Their layers and names of parameters are those of this package. Positions differ: the first one is `pad + 1`, all sines
stand before all cosines, and the wavelengths of section 3.5 go up to 10000 · 2π exactly, so that exponents are divided
by `d_model / 2 - 1`. They become a table, as learned positions are, which ends at `max_position_embeddings`.
"""

import argparse
import copy
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
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
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .comparison import Comparison, compare_models
from .destination import check_destination, refuse, write_model
from .loading import load_model
from .pickled import read_checkpoint
from .positions import spanning_sinusoids

Weights = Mapping[str, torch.Tensor]
_EPSILON = 1e-5  # of torch's own LayerNorm, which both use
_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3 of every fairseq dictionary
_BOS, _PAD, _EOS, _ = range(len(_SPECIAL_TOKENS))
_IDS = {"pad_token_id": _PAD, "bos_token_id": _BOS, "eos_token_id": _EOS, "decoder_start_token_id": _EOS}
_SAME_IN_FSMT = (
    *("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "dropout", "attention_dropout"),
    *("activation_dropout", "scale_embedding", "max_position_embeddings"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
_FIXED = {"attention_bias": True, "position_embedding_type": "learned", "layer_norm_eps": _EPSILON}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "tanh": "tanh"}
_PROJECTION, _OLD_PROJECTION = "decoder.output_projection.weight", "decoder.embed_out"
# Buffers of fairseq that are no parameters.
_NO_PARAMETERS = re.compile(r"(en|de)coder\.(version|embed_positions\._float_tensor)")


def from_fsmt(name: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison:
    """
    Writes an FSMT model, such as `facebook/wmt19-en-de`, as a model folder of this package. Its tokenizer and its
    decoding stay as they are.

    Raises:
        ValueError: the model is of another type.
        OSError: there is no such model, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    original = load_model(FSMTForConditionalGeneration, name)
    tokenizer = _with_eos(FSMTTokenizer.from_pretrained(name))
    return _write(original, model_from_fsmt(original), tokenizer, output_dir, sentences)


def model_from_fsmt(original: FSMTForConditionalGeneration) -> VanillaTransformerForConditionalGeneration:
    """
    The same model, with parameters of its own.

    Raises:
        ValueError: its padding has another id than fairseq's, where positions begin.
    """
    theirs = original.config
    refuse("This package", {f"its padding has another id than {_PAD}": theirs.pad_token_id != _PAD})
    config = VanillaTransformerConfig(
        vocab_size=theirs.src_vocab_size,
        decoder_vocab_size=theirs.tgt_vocab_size,
        share_encoder_decoder_embeddings=theirs.tie_word_embeddings,
        tie_word_embeddings=theirs.tie_word_embeddings,
        **{name: getattr(theirs, name) for name in _SAME_IN_FSMT},
        **_FIXED,
    )
    weights = {name.removeprefix("model."): tensor for name, tensor in original.state_dict().items()}
    model = _load(config, weights)
    model.generation_config = copy.deepcopy(original.generation_config)
    return model


class FairseqCheckpoint(NamedTuple):
    """What `from_fairseq` reads: the arguments and weights of a checkpoint, two dictionaries, and BPE codes."""

    arguments: Mapping[str, Any]
    weights: Weights
    source_tokens: list[str]
    target_tokens: list[str]
    merges: list[str]


def from_fairseq(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison | None:
    """
    Writes a checkpoint of fairseq's `transformer` as a model folder of this package, with the decoding that
    `fairseq-generate` begins with.

    Args:
        folder: A checkpoint (`*.pt`), `dict.LANGUAGE.txt` of both languages, and `bpecodes` of subword-nmt or fastBPE.

    Returns:
        The comparison with FSMT, transformers' port of fairseq, given the same weights; None where FSMT has not what
        the model needs (normalisation before sub-layers, learned positions, other activations).

    Raises:
        ValueError: something in the folder is not of that form, or cannot be represented; the text lists it.
        OSError: a file is missing, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    checkpoint = read_fairseq(folder)
    model = model_from_fairseq(checkpoint)
    with tempfile.TemporaryDirectory() as aside:
        tokenizer = _tokenizer(checkpoint, Path(aside))
        peer = _fsmt_peer(checkpoint, model)
        if peer is None:
            write_model(model, tokenizer, output_dir)
            return None
        return _write(peer, model, tokenizer, output_dir, sentences)


def read_fairseq(folder: str | Path) -> FairseqCheckpoint:
    """
    Raises:
        OSError: a file is missing.
        ValueError: the checkpoint holds more than tensors and plain values, or not what fairseq writes.
    """
    folder = Path(folder)
    checkpoints = sorted(folder.glob("*.pt"))
    if len(checkpoints) != 1:
        raise FileNotFoundError(f"There must be one checkpoint (*.pt) in {folder}, got {len(checkpoints)}.")
    arguments, weights = _read_checkpoint(checkpoints[0])
    for name in ("source_lang", "target_lang"):
        if not arguments.get(name):
            raise ValueError(
                f"The arguments in {checkpoints[0].name} must name `{name}`, got {arguments.get(name)!r}."
            )
    source, target = (
        _read_dictionary(folder / f"dict.{arguments[name]}.txt") for name in ("source_lang", "target_lang")
    )
    lines = (folder / "bpecodes").read_text(encoding="utf-8").splitlines()
    merges = [" ".join(line.split()[:2]) for line in lines if line.strip() and not line.startswith("#version")]
    return FairseqCheckpoint(arguments, weights, source, target, merges)


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], Weights]:
    content = read_checkpoint(path, "fairseq", "model", allowed=[argparse.Namespace])
    config = content.get("cfg") or {}
    arguments: dict[str, Any] = {}
    for part in (content.get("args"), config.get("task"), config.get("model")):
        arguments |= vars(part) if isinstance(part, argparse.Namespace) else dict(part or {})
    weights = {name: tensor.float() for name, tensor in content["model"].items() if not _NO_PARAMETERS.fullmatch(name)}
    return arguments, weights


def _read_dictionary(path: Path) -> list[str]:
    """The tokens of a dictionary in the order of their ids; each line has a token and its count."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [*_SPECIAL_TOKENS, *(line.rsplit(" ", 1)[0] for line in lines if line.strip())]


def model_from_fairseq(checkpoint: FairseqCheckpoint) -> VanillaTransformerForConditionalGeneration:
    """
    The model of a checkpoint.

    Raises:
        ValueError: it cannot be represented; the text lists why.
    """
    given = checkpoint.arguments
    _check_fairseq(given, checkpoint.weights)
    learned = bool(given.get("encoder_learned_pos"))
    config = VanillaTransformerConfig(
        vocab_size=len(checkpoint.source_tokens),
        decoder_vocab_size=len(checkpoint.target_tokens),
        share_encoder_decoder_embeddings=bool(given.get("share_all_embeddings")),
        tie_word_embeddings=bool(given.get("share_all_embeddings") or given.get("share_decoder_input_output_embed")),
        d_model=given["encoder_embed_dim"],
        **{f"{side}_layers": given[f"{side}_layers"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": given[f"{side}_attention_heads"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": given[f"{side}_ffn_embed_dim"] for side in ("encoder", "decoder")},
        activation_function=_ACTIVATIONS[given.get("activation_fn", "relu")],
        **{name: given.get(name, 0.0) for name in ("dropout", "attention_dropout", "activation_dropout")},
        normalize_before=bool(given.get("encoder_normalize_before")),
        scale_embedding=not given.get("no_scale_embedding"),
        max_position_embeddings=min(given.get(f"max_{side}_positions") or 1024 for side in ("source", "target")),
        **_IDS,
        **_FIXED,
    )
    model = _load(config, checkpoint.weights, learned)
    model.generation_config = GenerationConfig(
        num_beams=5, length_penalty=1.0, max_new_tokens=200, suppress_tokens=[_PAD], **_IDS
    )
    return model


def _check_fairseq(given: Mapping[str, Any], weights: Weights) -> None:
    def differ(name: str) -> bool:
        return given.get(f"encoder_{name}") != given.get(f"decoder_{name}")

    activation = given.get("activation_fn", "relu")
    refuse(
        "This package",
        {
            "the widths of encoder and decoder differ": differ("embed_dim"),
            "only one of encoder and decoder normalises before its sub-layers": differ("normalize_before"),
            "only one of encoder and decoder has learned positions": differ("learned_pos"),
            f"it activates with {activation!r}": activation not in _ACTIVATIONS,
            "its embeddings are normalised (`layernorm_embedding`)": bool(given.get("layernorm_embedding")),
            "it has no positions": bool(given.get("no_token_positional_embeddings")),
            "its softmax is adaptive": bool(given.get("adaptive_softmax_cutoff")),
            "self- and cross-attention are one (`cross_self_attention`)": bool(given.get("cross_self_attention")),
        },
    )


def _load(
    config: VanillaTransformerConfig, weights: Weights, learned: bool = False
) -> VanillaTransformerForConditionalGeneration:
    """
    A model with weights under fairseq's names.

    Raises:
        ValueError: weights are missing or left over; the text names the first of each.
    """
    model = VanillaTransformerForConditionalGeneration(config).eval()
    wanted = {name: _find(name, weights, config, learned) for name in model.state_dict()}
    missing = sorted(name for name, tensor in wanted.items() if tensor is None)
    known = {name.removeprefix("model.") for name in wanted} | {_PROJECTION, _OLD_PROJECTION}
    refuse(
        "This package",
        {
            f"there are no weights for {missing[:1]}": bool(missing),
            f"there is nothing like {sorted(weights.keys() - known)[:1]}": not weights.keys() <= known,
        },
    )
    model.load_state_dict(wanted)
    return model


def _find(name: str, weights: Weights, config: VanillaTransformerConfig, learned: bool) -> torch.Tensor | None:
    theirs = name.removeprefix("model.")
    if name == "lm_head.weight":
        tied = weights.get("decoder.embed_tokens.weight") if config.tie_word_embeddings else None
        return next((weights[one] for one in (_PROJECTION, _OLD_PROJECTION) if one in weights), tied)
    if theirs.endswith("embed_positions.weight"):
        count = config.max_position_embeddings
        if learned:
            return weights[theirs][_PAD + 1 :][:count]
        return spanning_sinusoids(count, config.d_model, first=_PAD + 1)
    return weights.get(theirs)


def _tokenizer(checkpoint: FairseqCheckpoint, aside: Path) -> FSMTTokenizer:
    """FSMT's, which does what fairseq's users do before it: Moses, then BPE, with the marks at the ends of words."""
    sides = {"src_vocab_file": checkpoint.source_tokens, "tgt_vocab_file": checkpoint.target_tokens}
    for name, tokens in sides.items():
        entries = {_with_end_of_word(token): index for index, token in enumerate(tokens)}
        (aside / f"{name}.json").write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    (aside / "merges.txt").write_text("".join(f"{merge}\n" for merge in checkpoint.merges), encoding="utf-8")
    languages = [checkpoint.arguments[name] for name in ("source_lang", "target_lang")]
    files = {name: str(aside / f"{name}.json") for name in sides}
    return _with_eos(FSMTTokenizer(languages, **files, merges_file=str(aside / "merges.txt")))


def _with_eos(tokenizer: FSMTTokenizer) -> FSMTTokenizer:
    """The pipeline asks for `eos_token`, which this tokenizer calls `sep_token`."""
    tokenizer.eos_token = tokenizer.sep_token
    return tokenizer


def _with_end_of_word(token: str) -> str:
    """fairseq's dictionary marks what goes on (`ab@@`), FSMT's what ends (`ab</w>`)."""
    if token in _SPECIAL_TOKENS:
        return token
    return token.removesuffix("@@") if token.endswith("@@") else f"{token}</w>"


def _fsmt_peer(
    checkpoint: FairseqCheckpoint, model: VanillaTransformerForConditionalGeneration
) -> FSMTForConditionalGeneration | None:
    config = model.config
    if (
        config.normalize_before
        or checkpoint.arguments.get("encoder_learned_pos")
        or config.activation_function != "relu"
    ):
        return None
    peer = FSMTForConditionalGeneration(
        FSMTConfig(
            langs=[checkpoint.arguments[name] for name in ("source_lang", "target_lang")],
            src_vocab_size=config.vocab_size,
            tgt_vocab_size=config.decoder_vocab_size,
            tie_word_embeddings=False,  # the weights say it
            forced_eos_token_id=None,
            **{name: getattr(config, name) for name in _SAME_IN_FSMT},
        )
    ).eval()
    ours = model.state_dict()
    names = {f"model.{_PROJECTION}": "lm_head.weight"}
    peer.load_state_dict(
        {
            name: tensor if "embed_positions" in name else ours[names.get(name, name)]
            for name, tensor in peer.state_dict().items()
        }
    )
    return peer


def _write(
    original: FSMTForConditionalGeneration,
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: FSMTTokenizer,
    output_dir: str | Path,
    sentences: Sequence[str],
) -> Comparison:
    comparison = compare_models(original, model, tokenizer, sentences)
    write_model(model, tokenizer, output_dir)
    return comparison
