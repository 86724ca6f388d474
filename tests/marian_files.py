"""Files in Marian's own layout, with random weights."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml

from tests.marian_models import MARIAN_SENTENCES
from tests.pieces import train_pieces
from vanilla_transformer.extensions.conversion import comparison
from vanilla_transformer.extensions.conversion.marian_npz import OPTIONS_ITEM, read_marian_folder
from vanilla_transformer.modeling_vanilla_transformer import sinusoidal_positions

OPTIONS = {
    "type": "transformer",
    "dim-emb": 16,
    "enc-depth": 2,
    "dec-depth": 1,
    "transformer-heads": 2,
    "transformer-dim-ffn": 32,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-guided-alignment-layer": "last",
}

PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}
# Changes of `marian_folder`.
MARIAN_VARIANTS = {
    "OPUS-MT": {},
    "untied": {"tied": False, "transformer-ffn-activation": "relu"},
    "pre-norm": PRE_NORM | {"transformer-ffn-activation": "gelu"},
    "tied source": {"tied": "src", "tied-embeddings-src": True},
    "tied target": {"tied": "target", "tied-embeddings": True},
    "decoder width": {"transformer-decoder-dim-ffn": 24},
    "no output bias": {"output-omit-bias": True},
}


def marian_folder(folder, tied="all", single=False, num_pieces=40, **options):
    """Write a folder; `tied` is the suffix of `tied-embeddings`: "all", "src", "target" for none of
    them, or False.
    """
    folder.mkdir()
    for side in ("source", "target"):
        tokens = train_pieces(
            folder / side, MARIAN_SENTENCES * 3, num_pieces, eos_id=0, unk_id=1, bos_id=-1
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    if single:
        (folder / "source.spm").rename(folder / "vocab.spm")
        (folder / "target.spm").unlink()
    else:
        lines = [
            f"? {token}\n: {index}\n" if index % 5 == 4 else f'"{token}": {index}\n'
            for index, token in enumerate(tokens)
        ]
        (folder / "model.vocab.yml").write_text("".join(lines))
        (folder / "decoder.yml").write_text("beam-size: 6\n")
    options = OPTIONS | {"dim-vocabs": [len(tokens)] * 2} | options
    config = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", dtype=np.int8)
    np.savez(folder / "model.npz", **{"special:model.yml": config}, **weights(options, tied))
    return folder


def weights(options, tied):
    draw = np.random.default_rng(0)
    width, size = options["dim-emb"], options["dim-vocabs"][0]
    pre = "_pre" if options["transformer-preprocess"] else ""
    found = {}

    def normal(name, *shape):
        found[name] = draw.normal(size=shape, scale=0.3).astype(np.float32)

    def norm(prefix, suffix=""):
        found[f"{prefix}_ln_scale{suffix}"] = 1 + draw.normal(size=(1, width), scale=0.2).astype(
            np.float32
        )
        normal(f"{prefix}_ln_bias{suffix}", 1, width)

    for name in ["Wemb"] if tied in ("all", "src") else ["encoder_Wemb", "decoder_Wemb"]:
        normal(name, size, width)
    if tied == "src":
        normal("decoder_ff_logit_out_Wt", size, width)
    elif not tied:
        normal("decoder_ff_logit_out_W", width, size)
    if not options.get("output-omit-bias"):
        normal("decoder_ff_logit_out_b", 1, size)
    for stack, depth, attentions in (
        ("encoder", "enc-depth", ["self"]),
        ("decoder", "dec-depth", ["self", "context"]),
    ):
        inner = options["transformer-dim-ffn"]
        if stack == "decoder":
            inner = options.get("transformer-decoder-dim-ffn") or inner
        for layer in range(1, options[depth] + 1):
            for attention in attentions:
                for letter in "qkvo":
                    normal(f"{stack}_l{layer}_{attention}_W{letter}", width, width)
                    normal(f"{stack}_l{layer}_{attention}_b{letter}", 1, width)
                norm(f"{stack}_l{layer}_{attention}_Wo", pre)
            normal(f"{stack}_l{layer}_ffn_W1", width, inner)
            normal(f"{stack}_l{layer}_ffn_b1", 1, inner)
            normal(f"{stack}_l{layer}_ffn_W2", inner, width)
            normal(f"{stack}_l{layer}_ffn_b2", 1, width)
            norm(f"{stack}_l{layer}_ffn_ffn", pre)
        if pre:
            norm(f"{stack}_top")
    return found


def ctranslate2_translator(folder, tokenizer):
    """Return a greedy translator that runs the same weights in CTranslate2.

    CTranslate2 computes positional encodings with other wavelengths, so Marian's are passed as a
    table.
    """
    import ctranslate2

    files = read_marian_folder(folder)
    arrays = {
        OPTIONS_ITEM: np.frombuffer(
            yaml.safe_dump(dict(files.options)).encode() + b"\0", dtype=np.int8
        ),
        "Wpos": sinusoidal_positions(
            torch.arange(1024), files.options["dim-emb"], "tensor2tensor"
        ).numpy(),
        # CTranslate2 needs a bias under `output-omit-bias`, too.
        "decoder_ff_logit_out_b": np.zeros((1, len(files.tokens[0])), dtype=np.float32),
        **files.weights,
    }
    lines = [
        f"{json.dumps(token, ensure_ascii=False)}: {index}\n"
        for index, token in enumerate(files.tokens[0])
    ]
    with tempfile.TemporaryDirectory() as parent:
        model, vocabulary, converted = (
            f"{parent}/{name}" for name in ("model.npz", "vocab.yml", "ctranslate2")
        )
        np.savez(model, **arrays)
        Path(vocabulary).write_text("".join(lines), encoding="utf-8")
        ctranslate2.converters.MarianConverter(model, [vocabulary] * 2).convert(converted)
        translator = ctranslate2.Translator(converted)

    def translate(sentences):
        # CTranslate2 appends EOS to the source.
        sources = [
            tokenizer.convert_ids_to_tokens(ids)[:-1]
            for ids in tokenizer([*sentences])["input_ids"]
        ]
        options = {"beam_size": 1, "max_decoding_length": comparison.MAX_NEW_TOKENS}
        results = translator.translate_batch(sources, **options)
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return translate
