"""
Marian's own files (`*.npz`), as OPUS-MT publishes them beside those for transformers.

Matrices are stored the other way round, `(inputs, outputs)`; the decoder starts from a zero vector, for which a
vocabulary entry is added that is never generated; wavelengths of positions go up to 10000 · 2π exactly, so that
exponents are divided by `d_model / 2 - 1`, and become a table as learned positions are.
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import torch
import yaml
from transformers import GenerationConfig, MarianTokenizer

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .comparison import MAX_NEW_TOKENS, Comparison, Translator, compare_translators, greedy
from .destination import check_destination, refuse, write_model
from .positions import spanning_sinusoids

_CONFIG = "special:model.yml"
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "quick_gelu"}  # Marian's gelu is x · sigmoid(1.702 x)
_EPSILON = 1e-6
_POSITIONS = 1024
_NEVER = -1e9  # the bias of what must not be generated; finite, since 0 · infinity is not a number
_POST_NORM, _PRE_NORM = ("", "dan", ""), ("n", "da", "n")
_EOS, _UNKNOWN = "</s>", "<unk>"
_PAD = "<pad>"


class MarianFiles(NamedTuple):
    """What a folder of Marian's holds: options, weights by Marian's names, tokens by id, and SentencePiece models."""

    options: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    tokens: list[str]
    source_spm: Path
    target_spm: Path


def from_marian_npz(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison | None:
    """
    Writes a model of Marian as a model folder of this package.

    Args:
        folder: The weights (`*.npz`); the vocabulary (`*.yml`, besides `decoder.yml`); `source.spm` and `target.spm`.
            Where Marian used a SentencePiece model as its vocabulary, `vocab.spm` stands for all three.

    Returns:
        The comparison with CTranslate2's form of the same files; None where CTranslate2 is not installed.

    Raises:
        ValueError: the model cannot be represented; the text lists why.
        OSError: a file is missing, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    files = read_marian(folder)
    model = model_from_marian_npz(files)
    with tempfile.TemporaryDirectory() as aside:
        tokenizer = _tokenizer(files, Path(aside))
        comparison = None
        peer = _ctranslate2_peer(files, tokenizer, Path(aside))
        if peer is not None:
            comparison = compare_translators(peer, greedy(model, tokenizer), sentences)
        write_model(model, tokenizer, output_dir)
    return comparison


def read_marian(folder: str | Path) -> MarianFiles:
    """
    Raises:
        OSError: a file is missing, or there are several where one must be.
        ValueError: the weights are not Marian's.
    """
    folder = Path(folder)
    weights = _read_arrays(_only(folder, "*.npz"))
    if _CONFIG not in weights:
        raise ValueError(f"The weights in {folder} must hold Marian's options ({_CONFIG}), but do not.")
    options = yaml.safe_load(weights.pop(_CONFIG).tobytes().rstrip(b"\0"))
    single = folder / "vocab.spm"
    if single.exists():
        model = sentencepiece.SentencePieceProcessor(model_file=str(single))
        return MarianFiles(options, weights, [model.id_to_piece(i) for i in range(len(model))], single, single)
    sides = [folder / f"{side}.spm" for side in ("source", "target")]
    for path in sides:
        if not path.exists():
            raise FileNotFoundError(f"There is neither {path.name} nor vocab.spm in {folder}.")
    return MarianFiles(options, weights, _read_vocabulary(folder), *sides)


def _only(folder: Path, pattern: str, besides: str = "") -> Path:
    found = [path for path in sorted(folder.glob(pattern)) if path.name != besides]
    if len(found) != 1:
        raise FileNotFoundError(f"There must be one file {pattern} in {folder}, got {len(found)}.")
    return found[0]


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return dict(content)
    except (ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:  # TypeError: an array alone, not an archive
        raise ValueError(f"{path} is not a whole file of NumPy's arrays: {error}") from error


def _read_vocabulary(folder: Path) -> list[str]:
    """The tokens by id. No library reads all of Marian's YAML: `token: id`, or the two on lines of their own."""
    entries: dict[int, str] = {}
    key = ""
    for line in _only(folder, "*.yml", besides="decoder.yml").read_text(encoding="utf-8").split("\n"):
        if line.startswith("? "):
            key = line[2:]
        elif line.startswith(": "):
            entries[int(line[2:])] = _unquoted(key)
        elif line.strip():
            key, number = line.rsplit(":", 1)
            entries[int(number)] = _unquoted(key)
    if sorted(entries) != list(range(len(entries))):
        raise ValueError(f"The vocabulary in {folder} must have the ids from 0 to {len(entries) - 1}, once each.")
    return [entries[index] for index in range(len(entries))]


def _unquoted(key: str) -> str:
    return str(yaml.safe_load(key)) if key[:1] in "\"'" else key


def model_from_marian_npz(files: MarianFiles) -> VanillaTransformerForConditionalGeneration:
    """
    The model of Marian's files, with one more entry of the vocabulary.

    Raises:
        ValueError: it cannot be represented; the text lists why.
    """
    options = files.options
    _check(options, files.weights)
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
        decoder_ffn_dim=options["transformer-dim-ffn"],
        activation_function=_ACTIVATIONS[options["transformer-ffn-activation"]],
        normalize_before=_norm(options) == _PRE_NORM,
        tie_word_embeddings="Wemb" in files.weights,
        attention_bias=True,
        lm_head_bias=True,
        position_embedding_type="learned",
        max_position_embeddings=_POSITIONS,
        layer_norm_eps=_EPSILON,
        **ids,
    )
    model = VanillaTransformerForConditionalGeneration(config).eval()
    model.load_state_dict({name: _find(name, tensor, files.weights) for name, tensor in model.state_dict().items()})
    model.generation_config = GenerationConfig(num_beams=6, length_penalty=1.0, max_new_tokens=512, **ids)
    return model


def _norm(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        options.get(f"transformer-{place}") or "" for place in ("preprocess", "postprocess", "postprocess-top")
    )


def _check(options: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    activation = options.get("transformer-ffn-activation")
    norm, autoregression = _norm(options), options.get("transformer-decoder-autoreg", "self-attention")
    refuse(
        "This package",
        {
            f"its type is {options.get('type')!r}, not 'transformer'": options.get("type") != "transformer",
            f"its decoder has {autoregression!r} in place of self-attention": autoregression != "self-attention",
            f"it activates with {activation!r}": activation not in _ACTIVATIONS,
            f"it normalises by {norm}, not by {_POST_NORM} or {_PRE_NORM}": norm not in (_POST_NORM, _PRE_NORM),
            "it processes its embeddings": bool(set(options.get("transformer-postprocess-emb") or "") - {"d"}),
            "its attention has no output projection": bool(options.get("transformer-no-projection")),
            "its feed-forward layers have another depth than 2": options.get("transformer-ffn-depth", 2) != 2,
            "source and target have different vocabularies": len(set(options.get("dim-vocabs", [0]))) > 1,
        },
    )


def _find(name: str, like: torch.Tensor, weights: Mapping[str, np.ndarray]) -> torch.Tensor:
    """The tensor of Marian's that our `name` stands for."""
    stack, *rest = name.removeprefix("model.").split(".")
    if stack == "lm_head":
        return _of_the_projection(rest[0], weights)
    if rest[0] == "embed_tokens":
        return _with_pad_row(weights, "Wemb", f"{stack}_Wemb")
    if rest[0] == "embed_positions":
        trained = weights.get("Wpos")
        return _tensor(trained) if trained is not None else spanning_sinusoids(*like.shape)
    if rest[0] == "layer_norm":
        return _tensor(weights[f"{stack}_top_ln_{_NORM_PARTS[rest[1]]}"]).flatten()
    return _of_a_layer(f"{stack}_l{int(rest[1]) + 1}", rest[2:], weights)


_NORM_PARTS = {"weight": "scale", "bias": "bias"}
_ATTENTIONS = {"self_attn": "self", "encoder_attn": "context"}


def _of_a_layer(layer: str, rest: list[str], weights: Mapping[str, np.ndarray]) -> torch.Tensor:
    """For instance `encoder_l1` and `["self_attn", "q_proj", "weight"]`: `encoder_l1_self_Wq`, transposed."""
    module, part = rest[0], rest[-1]
    if module.endswith("layer_norm"):
        attention = _ATTENTIONS.get(module.removesuffix("_layer_norm"))
        prefix = f"{layer}_ffn_ffn_ln" if attention is None else f"{layer}_{attention}_Wo_ln"
        name = f"{prefix}_{_NORM_PARTS[part]}"
        return _tensor(weights.get(f"{name}_pre", weights.get(name))).flatten()
    if module in _ATTENTIONS:
        letter, prefix = rest[1][0], f"{layer}_{_ATTENTIONS[module]}"  # q, k, v or o
    else:
        letter, prefix = module[-1], f"{layer}_ffn"  # 1 or 2
    if part == "bias":
        return _tensor(weights[f"{prefix}_b{letter}"]).flatten()
    return _tensor(weights[f"{prefix}_W{letter}"]).T


def _of_the_projection(part: str, weights: Mapping[str, np.ndarray]) -> torch.Tensor:
    if part == "bias":
        bias = _tensor(weights["decoder_ff_logit_out_b"]).flatten()
        return torch.cat([bias, torch.tensor([_NEVER])])
    if "decoder_ff_logit_out_W" in weights:
        return _with_zero_row(_tensor(weights["decoder_ff_logit_out_W"]).T)
    return _with_pad_row(weights, "decoder_ff_logit_out_Wt", "Wemb", "decoder_Wemb")


def _with_pad_row(weights: Mapping[str, np.ndarray], *names: str) -> torch.Tensor:
    return _with_zero_row(_tensor(next(weights[name] for name in names if name in weights)))


def _with_zero_row(matrix: torch.Tensor) -> torch.Tensor:
    return torch.cat([matrix, torch.zeros(1, matrix.shape[1])])


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def _tokenizer(files: MarianFiles, aside: Path) -> MarianTokenizer:
    vocabulary = {token: index for index, token in enumerate([*files.tokens, _PAD])}
    (aside / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    return MarianTokenizer(str(files.source_spm), str(files.target_spm), str(aside / "vocab.json"))


def _ctranslate2_peer(files: MarianFiles, tokenizer: MarianTokenizer, aside: Path) -> Translator | None:
    """What CTranslate2 makes of the same weights. It would compute other wavelengths, so that it gets Marian's."""
    try:
        import ctranslate2
    except ImportError:
        return None
    positions = spanning_sinusoids(_POSITIONS, files.options["dim-emb"]).numpy()
    config = np.frombuffer(yaml.safe_dump(dict(files.options)).encode() + b"\0", dtype=np.int8)
    arrays: dict[str, Any] = {_CONFIG: config, "Wpos": positions, **files.weights}
    np.savez(aside / "model.npz", **arrays)
    lines = [f"{json.dumps(token, ensure_ascii=False)}: {index}\n" for index, token in enumerate(files.tokens)]
    (aside / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    paths = [str(aside / "vocab.yml")] * 2
    ctranslate2.converters.MarianConverter(str(aside / "model.npz"), paths).convert(str(aside / "ctranslate2"))
    translator = ctranslate2.Translator(str(aside / "ctranslate2"))

    def translate(sentences: Sequence[str]) -> list[list[int]]:
        # It adds EOS to the source by itself.
        sources = [tokenizer.convert_ids_to_tokens(ids)[:-1] for ids in tokenizer(list(sentences))["input_ids"]]
        results = translator.translate_batch(sources, beam_size=1, max_decoding_length=MAX_NEW_TOKENS)
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return translate
