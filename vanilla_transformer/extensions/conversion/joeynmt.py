"""Convert from JoeyNMT's Transformer, which has the paper's positional encodings.

A JoeyNMT model folder has `config.yaml`, a checkpoint (`best.ckpt`, or the only `*.ckpt`), `src_vocab.txt` and
`trg_vocab.txt`. The SentencePiece models are at the paths in the configuration, or in the folder under the same names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from transformers import GenerationConfig, MarianTokenizer

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.errors import MissingFileError
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.utils.file_utils import check_output_dir_is_empty, save_model_folder

from .common import (
    Comparison,
    ModuleNames,
    build_model,
    build_sentencepiece_tokenizer,
    check_supported,
    find_sentencepiece_model,
    load_weights,
    option_reasons,
    reading,
    side_reasons,
)

Weights = Mapping[str, torch.Tensor]
_LAYER_NORM_EPS = 1e-6
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
_SPECIAL_SYMBOLS = {"unk": ("<unk>", 0), "pad": ("<pad>", 1), "bos": ("<s>", 2), "eos": ("</s>", 3)}
_FEED_FORWARD = {
    "fc1": "feed_forward.pwff_layer.0",
    "fc2": "feed_forward.pwff_layer.3",
    "final_layer_norm": "feed_forward.layer_norm",
}
NAMES = ModuleNames(
    modules={
        "encoder.embed_tokens": "src_embed.lut",
        "decoder.embed_tokens": "trg_embed.lut",
        "lm_head": "decoder.output_layer",
    },
    encoder_layer={"self_attn": "src_src_att", "self_attn_layer_norm": "layer_norm", **_FEED_FORWARD},
    decoder_layer={
        "self_attn": "trg_trg_att",
        "self_attn_layer_norm": "x_layer_norm",
        "encoder_attn": "src_trg_att",
        "encoder_attn_layer_norm": "dec_layer_norm",
        **_FEED_FORWARD,
    },
    projections={"q_proj": "q_layer", "k_proj": "k_layer", "v_proj": "v_layer", "out_proj": "output_layer"},
)


class JoeyNMTModel(NamedTuple):
    """Contents of a JoeyNMT folder. Weights have JoeyNMT's names; tokens are in the order of their ids."""

    config: Mapping[str, Any]
    weights: Weights
    source_tokens: list[str]
    target_tokens: list[str]
    source_spm: Path
    target_spm: Path


def from_joeynmt(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison | None:
    """Convert a JoeyNMT model to a model folder of this package, with the decoding options of its configuration.

    Returns:
        None: there is no comparison, since JoeyNMT's requirements conflict with this package's.
    """
    check_output_dir_is_empty(output_dir)
    with reading(folder, "JoeyNMT"):
        joey = read_joeynmt(folder)
        model, tokenizer = model_from_joeynmt(joey), _build_tokenizer(joey)
    save_model_folder(model, tokenizer, output_dir)
    return None


def read_joeynmt(folder: str | Path) -> JoeyNMTModel:
    """Read a JoeyNMT folder."""
    folder = Path(folder)
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    _check_tokenizers(config["data"])
    checkpoints = [path for path in [folder / "best.ckpt"] if path.exists()] or sorted(folder.glob("*.ckpt"))
    if len(checkpoints) != 1:
        raise MissingFileError(f"There must be best.ckpt or one *.ckpt in {folder}, got {len(checkpoints)}.")
    content = load_pickled_checkpoint(checkpoints[0], "JoeyNMT", "model_state")
    files = [(folder / f"{side}_vocab.txt").read_text(encoding="utf-8") for side in ("src", "trg")]
    source, target = (text.rstrip("\n").split("\n") for text in files)
    names = (config["data"][side]["tokenizer_cfg"]["model_file"] for side in ("src", "trg"))
    spms = (find_sentencepiece_model(name, folder) for name in names)
    return JoeyNMTModel(config, content["model_state"], source, target, *spms)


def _check_tokenizers(data: Mapping[str, Any]) -> None:
    allowed: dict[str, Sequence[Any]] = {
        "level": ["bpe"],
        "tokenizer_type": ["sentencepiece"],
        "bpe_type": ["sentencepiece"],
        "lowercase": [False, None],
        "normalize": [False, None],
        "pretokenizer": ["none"],
    }
    sides = [{"level": None, **data[side], **(data[side].get("tokenizer_cfg") or {})} for side in ("src", "trg")]
    check_supported("This package", option_reasons(sides[0], allowed) | option_reasons(sides[1], allowed))


def model_from_joeynmt(joey: JoeyNMTModel) -> VanillaTransformerForConditionalGeneration:
    """Build the same model."""
    given = joey.config["model"]
    encoder, decoder = given["encoder"], given["decoder"]
    _check_model(given, encoder, decoder)
    ids = _special_ids(joey.config)
    same_vocabulary = joey.source_tokens == joey.target_tokens
    tied = bool(given.get("tied_softmax"))
    config = VanillaTransformerConfig(
        vocab_size=len(joey.source_tokens),
        decoder_vocab_size=len(joey.target_tokens),
        # This package shares source and target embeddings only if the output projection is tied as well.
        share_encoder_decoder_embeddings=bool(given.get("tied_embeddings")) and tied and same_vocabulary,
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
    model = build_model(config, joey.weights)
    load_weights(model, joey.weights, lambda name, _, weights: weights.first(NAMES.translate(name)), unused=".*")
    model.generation_config = _generation_config(joey.config.get("testing") or {}, ids)
    return model


def _check_model(given: Mapping[str, Any], encoder: Mapping[str, Any], decoder: Mapping[str, Any]) -> None:
    allowed: dict[str, Sequence[Any]] = {
        "type": ["transformer"],
        "activation": [*_ACTIVATIONS],
        "layer_norm": ["pre", "post"],  # without it JoeyNMT's encoder is pre-norm but has no final layer norm
        "alpha": [1.0],  # the weight of its residual connections
    }
    required = {"type": None, "layer_norm": None}
    scales = {bool(side["embeddings"].get("scale")) for side in (encoder, decoder)}
    check_supported(
        "This package",
        {
            **option_reasons(required | {**encoder}, allowed),
            **option_reasons(required | {**decoder}, allowed),
            **side_reasons(encoder, decoder, ["activation", "hidden_size", "layer_norm"]),
            "only one of the embeddings is scaled": len(scales) > 1,
            "source and target embeddings are shared, but not tied to the softmax": bool(given.get("tied_embeddings"))
            and not given.get("tied_softmax"),
        },
    )


def _special_ids(config: Mapping[str, Any]) -> dict[str, int]:
    given = config["data"].get("special_symbols") or {}
    ids = {name: given.get(f"{name}_id", default) for name, (_, default) in _SPECIAL_SYMBOLS.items()}
    return {
        "pad_token_id": ids["pad"],
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "decoder_start_token_id": ids["bos"],
    }


def _generation_config(testing: Mapping[str, Any], ids: Mapping[str, int]) -> GenerationConfig:
    """Build the generation config. `beam_alpha` is the exponent of the paper's length penalty; -1 disables it."""
    alpha = testing.get("beam_alpha", -1)
    limit = testing.get("max_output_length", -1)
    return GenerationConfig(
        num_beams=testing.get("beam_size", 1),
        length_penalty=alpha if alpha > 0 else 0.0,
        length_penalty_type="wu",
        max_new_tokens=limit if limit > 0 else None,
        max_new_tokens_beyond_source=50 if limit <= 0 else None,
        suppress_tokens=[ids["pad_token_id"]],
        **ids,
    )


def _build_tokenizer(joey: JoeyNMTModel) -> MarianTokenizer:
    given = joey.config["data"].get("special_symbols") or {}
    names = {f"{name}_token": given.get(f"{name}_token", default) for name, (default, _) in _SPECIAL_SYMBOLS.items()}
    return build_sentencepiece_tokenizer(
        (joey.source_spm, joey.target_spm), (joey.source_tokens, joey.target_tokens), names
    )
