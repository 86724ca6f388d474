"""Convert to a folder for Bergamot, the fork of Marian that translates in Firefox, in apps and in
npm's package.
"""

import copy
import importlib.util
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from torch import nn
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.text.languages import NO_DIRECTION, find_direction, find_languages

from .common import check_supported, option_reasons, rename, target_reasons
from .comparison import Translator, greedy_translator
from .marian import start_from_zero
from .marian_bin import EMBEDDING, write_bin
from .marian_npz import NORM_PLACES, OPTIONS, OPTIONS_ITEM, POST_NORM
from .shortlist import count_shortlist, write_bergamot_shortlist
from .weight_names import MARIAN_NAMES

_FLOAT32, _INT8, _VOCABULARY, _SHORTLIST = (
    "model.bin",
    "model.intgemm.alphas.bin",
    "vocab.spm",
    "lex.bin",
)
_OUTPUT_BIAS = "decoder_ff_logit_out_b"
_MULTIPLE = 8  # of the sizes of matrices in int8
_LENGTH_FACTOR = 2  # tokens of a translation for each one of its source
# Fields of a model that has a counterpart.
_FIELDS: dict[str, Sequence[Any]] = {
    **{
        name: [True]
        for name in ("tie_word_embeddings", "share_encoder_decoder_embeddings", "scale_embedding")
    },
    "normalize_before": [False],
    "activation_function": ["relu"],
    "position_embedding_type": ["sinusoidal"],
    "sinusoid_layout": ["tensor2tensor"],
}
_PROGRAM = "translate.cjs"
# Names there and here
_COPIED = {"config.yml": "bergamot_config.yml", _PROGRAM: "bergamot_translate.cjs"}
_WIDTHS = ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")
_NAMES = MARIAN_NAMES | {"..coder_Wemb": EMBEDDING, r"lm_head\.bias": _OUTPUT_BIAS}


def write_bergamot(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    calibration: Sequence[str],
    shortlist_text: Sequence[SentencePair] = (),
) -> Iterator[tuple[str, Translator, Translator]]:
    """Write the weights in float32 and int8, the vocabulary, settings, and a description as
    Mozilla's.

    Bergamot itself translates if Node finds the package of npm, or else Marian does, in float32.

    Args:
        calibration: Sentences whose translation shows how large the inputs of matrices are, for
            int8.
        shortlist_text: Pairs whose shortlist is written, which int8 uses.
    """
    if not calibration:
        raise UserError("Int8 needs at least one sentence to translate, got none.")
    (folder / _VOCABULARY).write_bytes(find_vocabulary(model, tokenizer))
    (folder / _SHORTLIST).write_bytes(b"")
    for name, ours in _COPIED.items():
        shutil.copy(Path(__file__).with_name(ours), folder / name)
    if shortlist_text:
        shortlist = count_shortlist(tokenizer, shortlist_text)
        write_bergamot_shortlist(shortlist, model.config.pad_token_id, folder / _SHORTLIST)
        with (folder / "config.yml").open("a") as file:
            file.write(f"shortlist:\n- {_SHORTLIST}\n- false\n")
    config, weights = copy.deepcopy(model.config), model.state_dict()
    config.attention_bias = config.lm_head_bias = True
    ours = VanillaTransformerForConditionalGeneration(config).eval()
    ours.load_state_dict(weights, strict=False)  # without biases they are zero
    start_from_zero(ours)
    options, arrays = marian_options(config), marian_weights(ours)
    written_options = yaml.safe_dump(options).encode() + b"\0"
    item = {OPTIONS_ITEM: np.frombuffer(written_options, np.int8)}
    write_bin(folder / _FLOAT32, arrays | item)
    alphas = find_alphas(ours, lambda: _translate(ours, tokenizer, calibration))
    for name, alpha in alphas.items():
        arrays[f"{name}_QuantMultA"] = np.array([alpha], np.float32)
    # The name of the array where there is a shortlist
    arrays["none_QuantMultA"] = arrays[f"{EMBEDDING}_QuantMultA"]
    write_bin(folder / _INT8, dict(sorted(arrays.items())) | item, alphas)
    statistics = Counter(parameters=sum(array.size for array in arrays.values()))
    for name, array in arrays.items():
        parts = (part for part in ("encoder", "decoder") if name.startswith(part))
        part = next(parts, "embeddings")
        statistics[f"{part}_parameters"] += array.size
        statistics[f"{part}_bytes"] += array.size if name in alphas else array.nbytes
    direction = NO_DIRECTION if find_languages(tokenizer) else find_direction(tokenizer)
    architecture = "base"
    if config.d_model < 512:
        architecture = "tiny" if config.d_model <= 256 else "base-memory"
    description = {
        "architecture": architecture,
        "byteSize": (folder / _INT8).stat().st_size,
        "hash": hash_file(folder / _INT8),
        "modelConfig": options,
        "modelStatistics": statistics,
        "sourceLanguage": direction.source,
        "targetLanguage": direction.target,
    }
    text = json.dumps(description, indent=2) + "\n"
    (folder / "metadata.json").write_text(text, encoding="utf-8")
    original = partial(_translate, model, tokenizer)
    return ((dtype, translate, original) for dtype, translate in _find_engines(folder))


def find_vocabulary(
    model: VanillaTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase
) -> bytes:
    """Return the SentencePiece model of both sides.

    Refuse a model with all reasons why Bergamot cannot hold it.
    """
    config, of_ours = model.config, getattr(tokenizer, "sentencepiece_model", None)
    # Marian's tokenizer has such files.
    files = [*{Path(path).read_bytes() for path in getattr(tokenizer, "spm_files", ())}]
    files = files if of_ours is None else [of_ours]
    spm: Any = ()
    if len(files) == 1:
        spm = sentencepiece.SentencePieceProcessor(model_proto=files[0])
    pieces = [spm.id_to_piece(index) for index in range(len(spm))]
    tokens = tokenizer.convert_ids_to_tokens([*range(len(tokenizer))])
    is_padded = tokenizer.pad_token_id == config.pad_token_id == len(pieces)
    has_others = bool(pieces) and not (tokens[:-1] == pieces and is_padded)
    forced = model.generation_config.forced_bos_token_id
    has_other_heads = config.encoder_attention_heads != config.decoder_attention_heads
    has_rest = len(pieces) % _MULTIPLE > 0
    reasons = option_reasons(config.to_dict(), _FIELDS)
    for name in _WIDTHS:
        has_rest_of_size = getattr(config, name) % _MULTIPLE > 0
        reasons[f"`{name}` is no multiple of {_MULTIPLE}"] = has_rest_of_size
    heads = "encoder and decoder have different numbers of heads (`decoder_attention_heads`)"
    reasons |= {
        heads: has_other_heads,
        **target_reasons(config),
        "it begins translations with a language (`forced_bos_token_id`)": forced is not None,
        "it has not one SentencePiece model (`tokenizer_model: sentencepiece`)": not pieces,
        "its tokens are not the pieces of its SentencePiece model and then padding": has_others,
        f"`vocab_size` gives {len(pieces)} pieces, no multiple of {_MULTIPLE}": has_rest,
    }
    check_supported("Bergamot", reasons)
    return files[0]


def marian_options(config: VanillaTransformerConfig) -> dict[str, Any]:
    """Return Marian's options of a model."""
    options = {name: values[0] for name, values in OPTIONS.items()}
    for norm, letters in zip(NORM_PLACES, POST_NORM, strict=True):
        options[f"transformer-{norm}"] = letters
    return options | {
        "dim-emb": config.d_model,
        "dim-vocabs": [config.pad_token_id] * 2,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": config.encoder_attention_heads,
        "transformer-dim-ffn": config.encoder_ffn_dim,
        "transformer-decoder-dim-ffn": config.decoder_ffn_dim,
        "transformer-train-position-embeddings": False,
        "transformer-guided-alignment-layer": "last",  # which CTranslate2 asks for
        "tied-embeddings-all": True,
        "version": "v1.12.0",
    }


def marian_weights(model: VanillaTransformerForConditionalGeneration) -> dict[str, np.ndarray]:
    """Return the weights by Marian's names in their order, without padding."""
    weights = {}
    for name, weight in model.state_dict().items():
        if "positions" not in name:
            weights[rename(name, _NAMES)] = weight
    for name, weight in weights.items():
        if name in (EMBEDDING, _OUTPUT_BIAS):
            weight = weight[: model.config.pad_token_id]
        if weight.dim() == 1:
            weights[name] = weight[None]
        else:
            weights[name] = weight if name == EMBEDDING else weight.T
    return {name: weight.contiguous().numpy() for name, weight in sorted(weights.items())}


def find_alphas(model: nn.Module, translate: Callable[[], object]) -> dict[str, float]:
    """Return the factors of the inputs of each matrix, by which Bergamot multiplies them before it
    rounds.

    As for Mozilla's students, 127 stands for the mean and 1.1 standard deviations of the largest
    inputs of all calls.
    """
    maxima = dict[str, list[float]]()

    def record(name: str, _: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        maxima.setdefault(name, []).append(float(inputs[0].abs().max()))

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            renamed = rename(f"{name}.weight", _NAMES)
            module.register_forward_pre_hook(partial(record, renamed))
    translate()
    limits = {}
    for name, largest in maxima.items():
        limits[name] = float(np.mean(largest) + 1.1 * np.std(largest))
    return {name: 127 / (limit or 1.0) for name, limit in limits.items()}


def _translate(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> list[str]:
    """Translate as Marian does: without `<unk>`, and to the limit for the length of the source."""
    limits = [_LENGTH_FACTOR * len(ids) for ids in tokenizer([*sentences])["input_ids"]]
    banned = {"suppress_tokens": [model.config.pad_token_id, tokenizer.unk_token_id]}
    translate = greedy_translator(model, tokenizer, **banned, max_new_tokens=max(limits))
    rows = translate(sentences)
    rows = [row[:limit] for row, limit in zip(rows, limits, strict=True)]
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    return [text.strip() for text in texts]


def _find_engines(folder: Path) -> Iterator[tuple[str, Translator]]:
    """Yield what can translate with a folder here.

    Node finds Bergamot in `node_modules` of the working folder and of those above it, and in
    NODE_PATH.
    """
    search = "require.resolve('@browsermt/bergamot-translator/package.json')"
    node = shutil.which("node")
    if (
        node is not None
        and subprocess.run([node, "-p", search], capture_output=True).returncode == 0
    ):
        for dtype in ("float32", "int8"):
            command = [node, str(folder / _PROGRAM), dtype]
            yield dtype, partial(_translate_in_node, command)
    elif importlib.util.find_spec("pymarian") is not None:
        from pymarian import Translator as Marian

        options = {
            "max_length_factor": float(_LENGTH_FACTOR),
            "beam_size": 1,
            "mini_batch": 1,
            "cpu_threads": 1,
        }
        vocabularies = [str(folder / _VOCABULARY)] * 2
        marian = Marian(
            models=str(folder / _FLOAT32),
            vocabs=vocabularies,
            **options,
            quiet=True,
            quiet_translation=True,
        )
        yield "float32", lambda sentences: [text.strip() for text in marian.translate([*sentences])]


def _translate_in_node(command: Sequence[str], sentences: Sequence[str]) -> list[str]:
    text = "".join(f"{sentence}\n" for sentence in sentences)
    ended = subprocess.run(command, input=text.encode(), capture_output=True)
    if ended.returncode:
        words = " ".join(ended.stderr.decode(errors="replace").split())[:200]
        raise UserError(
            f"Bergamot in Node must translate with the converted model, but ended with: {words}"
        )
    return ended.stdout.decode().split("\n")[:-1]
