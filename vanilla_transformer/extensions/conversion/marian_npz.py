"""Convert from Marian's own files (`*.npz`), which OPUS-MT publishes as well.

Matrices are stored as `(inputs, outputs)`. The decoder starts from a zero vector, for which we add a vocabulary entry
that is never generated. The positional encodings (see `fairseq_sinusoids`) become a table, like learned positions.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import torch
import yaml
from transformers import GenerationConfig, MarianTokenizer

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import check_unpacked_size
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.utils.file_utils import check_output_dir_is_empty, save_model_folder

from .common import (
    MAX_NEW_TOKENS,
    Comparison,
    ForeignWeights,
    Translator,
    build_model,
    check_supported,
    compare_translators,
    fairseq_sinusoids,
    greedy_translator,
    load_weights,
    option_reasons,
    reading,
    require_same,
)

_CONFIG = "special:model.yml"
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "quick_gelu"}  # Marian's gelu is x · sigmoid(1.702 x)
_LAYER_NORM_EPS = 1e-6
_NUM_POSITIONS = 1024
_BANNED_LOGIT = -1e9  # the bias of an entry that must not be generated; finite, since 0 · infinity is NaN
_POST_NORM, _PRE_NORM = ("", "dan", ""), ("n", "da", "n")
_OUTPUT = "decoder_ff_logit_out"
_EOS, _UNKNOWN = "</s>", "<unk>"
_PAD = "<pad>"


class MarianFiles(NamedTuple):
    """Contents of a Marian folder. Weights have Marian's names; tokens are in the order of their ids."""

    options: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    tokens: list[str]
    source_spm: Path
    target_spm: Path


def from_marian_npz(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison | None:
    """Convert a model in Marian's own format to a model folder of this package.

    Args:
        folder: The weights (`*.npz`), the vocabulary (`*.yml` other than `decoder.yml`), `source.spm` and
            `target.spm`. If Marian used SentencePiece as its vocabulary, `vocab.spm` replaces the latter three.

    Returns:
        The comparison with CTranslate2, which reads the same files. None if CTranslate2 is not installed.
    """
    check_output_dir_is_empty(output_dir)
    with tempfile.TemporaryDirectory() as temporary:
        with reading(folder, "Marian"):
            files = read_marian(folder)
            model = model_from_marian_npz(files)
            tokenizer = _build_tokenizer(files, Path(temporary))
            reference = _ctranslate2_translator(files, tokenizer, Path(temporary))
            comparison = None
            if reference is not None:
                comparison = compare_translators(reference, greedy_translator(model, tokenizer), sentences, tokenizer)
                require_same(comparison, model, tokenizer, sentences)
        save_model_folder(model, tokenizer, output_dir)
    return comparison


def read_marian(folder: str | Path) -> MarianFiles:
    """Read a Marian folder."""
    folder = Path(folder)
    path = _find_one(folder, "*.npz")
    check_unpacked_size(path)
    with np.load(path, allow_pickle=False) as content:
        weights = dict(content)
    if _CONFIG not in weights:
        raise UserError(f"The weights in {folder} must contain Marian's options ({_CONFIG}), but do not.")
    options = yaml.safe_load(weights.pop(_CONFIG).tobytes().rstrip(b"\0"))
    single = folder / "vocab.spm"
    if single.exists():
        model = sentencepiece.SentencePieceProcessor(model_file=str(single))
        return MarianFiles(options, weights, [model.id_to_piece(i) for i in range(len(model))], single, single)
    sides = [folder / f"{side}.spm" for side in ("source", "target")]
    for path in sides:
        if not path.exists():
            raise MissingFileError(f"There is neither {path.name} nor vocab.spm in {folder}.")
    return MarianFiles(options, weights, _read_vocabulary(folder), *sides)


def _find_one(folder: Path, pattern: str, exclude: str = "") -> Path:
    found = [path for path in sorted(folder.glob(pattern)) if path.name != exclude]
    if len(found) != 1:
        raise MissingFileError(f"There must be one file {pattern} in {folder}, got {len(found)}.")
    return found[0]


def _read_vocabulary(folder: Path) -> list[str]:
    """Read the tokens in the order of their ids.

    Marian writes `token: id`, or `? token` and `: id` on two lines, and does not quote every token as YAML requires.
    """
    entries: dict[int, str] = {}
    key = ""
    for line in _find_one(folder, "*.yml", exclude="decoder.yml").read_text(encoding="utf-8").split("\n"):
        if line.startswith("? "):
            key = line[2:]
        elif line.startswith(": "):
            entries[int(line[2:])] = _unquote(key)
        elif line.strip():
            key, number = line.rsplit(":", 1)
            entries[int(number)] = _unquote(key)
    if sorted(entries) != list(range(len(entries))):
        raise UserError(f"The vocabulary in {folder} must have each id from 0 to {len(entries) - 1} once.")
    return [entries[index] for index in range(len(entries))]


def _unquote(key: str) -> str:
    return str(yaml.safe_load(key)) if key[:1] in "\"'" else key


def model_from_marian_npz(files: MarianFiles) -> VanillaTransformerForConditionalGeneration:
    """Build the model of Marian's files, with one more vocabulary entry."""
    options = files.options
    _check_options(options)
    pad, eos = len(files.tokens), files.tokens.index(_EOS)
    ids = {"pad_token_id": pad, "bos_token_id": None, "eos_token_id": eos, "decoder_start_token_id": pad}
    config = VanillaTransformerConfig(
        vocab_size=pad + 1,
        d_model=options["dim-emb"],
        encoder_layers=options["enc-depth"],
        decoder_layers=options["dec-depth"],
        encoder_attention_heads=options["transformer-heads"],
        decoder_attention_heads=options["transformer-heads"],
        encoder_ffn_dim=options["transformer-dim-ffn"],
        decoder_ffn_dim=options.get("transformer-decoder-dim-ffn") or options["transformer-dim-ffn"],
        activation_function=_ACTIVATIONS[options["transformer-ffn-activation"]],
        normalize_before=_norm_positions(options) == _PRE_NORM,
        share_encoder_decoder_embeddings="Wemb" in files.weights,
        tie_word_embeddings=_is_output_tied(files),
        attention_bias=True,
        lm_head_bias=True,
        position_embedding_type="learned",
        max_position_embeddings=_NUM_POSITIONS,
        layer_norm_eps=_LAYER_NORM_EPS,
        **ids,
    )
    model = build_model(config, files.weights)
    load_weights(model, files.weights, partial(_find_weight, files), unused="special:.*")
    model.generation_config = GenerationConfig(num_beams=6, length_penalty=1.0, max_new_tokens=512, **ids)
    return model


def _is_output_tied(files: MarianFiles) -> bool:
    """Tell whether the output projection is the target embedding; `tied-embeddings-src` ties only both embeddings."""
    stored = any(f"{_OUTPUT}_{name}" in files.weights for name in ("W", "Wt"))
    return not stored or any(files.options.get(name) for name in ("tied-embeddings", "tied-embeddings-all"))


def _norm_positions(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        options.get(f"transformer-{place}") or "" for place in ("preprocess", "postprocess", "postprocess-top")
    )


def _check_options(options: Mapping[str, Any]) -> None:
    norm, vocabularies = _norm_positions(options), {*options.get("dim-vocabs", [0])}
    allowed: dict[str, Sequence[Any]] = {
        "type": ["transformer"],
        "transformer-decoder-autoreg": ["self-attention"],
        "transformer-ffn-activation": [*_ACTIVATIONS],
        "transformer-postprocess-emb": ["", "d", None],
        "transformer-no-projection": [False, None],
        "transformer-ffn-depth": [2],
        "transformer-decoder-ffn-depth": [2, 0, None],
    }
    check_supported(
        "This package",
        {
            **option_reasons({"type": None, "transformer-ffn-activation": None, **options}, allowed),
            f"its normalization is {norm}, not {_POST_NORM} or {_PRE_NORM}": norm not in (_POST_NORM, _PRE_NORM),
            "source and target have different vocabularies": len(vocabularies) > 1,
        },
    )


def _find_weight(files: MarianFiles, name: str, initial: torch.Tensor, weights: ForeignWeights) -> torch.Tensor:
    """Return Marian's tensor for our parameter `name`, which has the shape of `initial`."""
    stack, *rest = name.removeprefix("model.").split(".")
    if stack == "lm_head":
        return _projection_bias(weights, files) if rest[0] == "bias" else _projection_weight(weights, files)
    if rest[0] == "embed_tokens":
        return _add_zero_row(weights.first("Wemb", f"{stack}_Wemb"))
    if rest[0] == "embed_positions":
        return weights.first("Wpos") if "Wpos" in weights else fairseq_sinusoids(*initial.shape)
    if rest[0] == "layer_norm":
        return weights.first(f"{stack}_top_ln_{_NORM_PARTS[rest[1]]}").flatten()
    return _layer_weight(f"{stack}_l{int(rest[1]) + 1}", rest[2:], weights)


_NORM_PARTS = {"weight": "scale", "bias": "bias"}
_ATTENTIONS = {"self_attn": "self", "encoder_attn": "context"}


def _layer_weight(layer: str, rest: list[str], weights: ForeignWeights) -> torch.Tensor:
    """Return a weight of a layer: `self_attn.q_proj.weight` of `encoder_l1` is `encoder_l1_self_Wq`, transposed."""
    module, part = rest[0], rest[-1]
    if module.endswith("layer_norm"):
        attention = _ATTENTIONS.get(module.removesuffix("_layer_norm"))
        prefix = f"{layer}_ffn_ffn_ln" if attention is None else f"{layer}_{attention}_Wo_ln"
        name = f"{prefix}_{_NORM_PARTS[part]}"
        return weights.first(f"{name}_pre", name).flatten()
    if module in _ATTENTIONS:
        letter, prefix = rest[1][0], f"{layer}_{_ATTENTIONS[module]}"  # q, k, v or o
    else:
        letter, prefix = module[-1], f"{layer}_ffn"  # 1 or 2
    return weights.first(f"{prefix}_b{letter}").flatten() if part == "bias" else weights.first(f"{prefix}_W{letter}").T


def _projection_weight(weights: ForeignWeights, files: MarianFiles) -> torch.Tensor:
    if _is_output_tied(files):
        return _add_zero_row(weights.first("Wemb", "decoder_Wemb"))
    transposed = f"{_OUTPUT}_W" in weights
    return _add_zero_row(weights.first(f"{_OUTPUT}_W").T if transposed else weights.first(f"{_OUTPUT}_Wt"))


def _projection_bias(weights: ForeignWeights, files: MarianFiles) -> torch.Tensor:
    """Return the bias, which is zero under `output-omit-bias`, with the one that bans the added entry."""
    omitted = files.options.get("output-omit-bias")
    bias = torch.zeros(len(files.tokens)) if omitted else weights.first(f"{_OUTPUT}_b").flatten()
    return torch.cat([bias, torch.tensor([_BANNED_LOGIT])])


def _add_zero_row(matrix: torch.Tensor) -> torch.Tensor:
    return torch.cat([matrix, torch.zeros(1, matrix.shape[1])])


def _build_tokenizer(files: MarianFiles, folder: Path) -> MarianTokenizer:
    vocabulary = {token: index for index, token in enumerate([*files.tokens, _PAD])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    return MarianTokenizer(str(files.source_spm), str(files.target_spm), str(folder / "vocab.json"))


def _ctranslate2_translator(files: MarianFiles, tokenizer: MarianTokenizer, folder: Path) -> Translator | None:
    """Return a greedy translator that runs the same weights in CTranslate2, or None if it is not installed.

    CTranslate2 computes positional encodings with other wavelengths, so Marian's are passed as a table.
    """
    try:
        import ctranslate2
    except ImportError:
        return None
    positions = fairseq_sinusoids(_NUM_POSITIONS, files.options["dim-emb"]).numpy()
    config = np.frombuffer(yaml.safe_dump(dict(files.options)).encode() + b"\0", dtype=np.int8)
    bias = np.zeros((1, len(files.tokens)), dtype=np.float32)  # which CTranslate2 needs under `output-omit-bias`
    arrays: dict[str, Any] = {_CONFIG: config, "Wpos": positions, f"{_OUTPUT}_b": bias, **files.weights}
    np.savez(folder / "model.npz", **arrays)
    lines = [f"{json.dumps(token, ensure_ascii=False)}: {index}\n" for index, token in enumerate(files.tokens)]
    (folder / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    paths = [str(folder / "vocab.yml")] * 2
    ctranslate2.converters.MarianConverter(str(folder / "model.npz"), paths).convert(str(folder / "ctranslate2"))
    translator = ctranslate2.Translator(str(folder / "ctranslate2"))

    def translate(sentences: Sequence[str]) -> list[list[int]]:
        # CTranslate2 appends EOS to the source.
        sources = [tokenizer.convert_ids_to_tokens(ids)[:-1] for ids in tokenizer(list(sentences))["input_ids"]]
        results = translator.translate_batch(sources, beam_size=1, max_decoding_length=MAX_NEW_TOKENS)
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return translate
