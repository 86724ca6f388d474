"""Random models and tokenizers of transformers' Marian, and files in Marian's own layout."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from tests.tiny import train_pieces
from vanilla_transformer.extensions.conversion import comparison
from vanilla_transformer.extensions.conversion.marian_npz import OPTIONS_ITEM, read_marian_folder
from vanilla_transformer.modeling_vanilla_transformer import sinusoidal_positions

MARIAN_SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Grass"]
MARIAN_SIZES = {"encoder_layers": 2, "decoder_layers": 2}
MARIAN_SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
MARIAN_SIZES |= {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 24, "init_std": 0.3}


def build_marian_tokenizer(folder, sentences=MARIAN_SENTENCES * 3, vocab_size=40):
    """Build a tokenizer as OPUS-MT does: two SentencePiece models, and a vocabulary with other
    ids.
    """
    for side in ("source", "target"):
        pieces = train_pieces(folder / side, sentences, vocab_size)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    names = ["</s>", "<unk>", *pieces[3:], "<pad>"]
    vocabulary = {name: index for index, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = [folder / name for name in ("source.spm", "target.spm", "vocab.json")]
    return MarianTokenizer(*map(str, files))


def marian_model(size, **changes):
    """Return a random model with a nonzero logit bias."""
    torch.manual_seed(0)
    ids = {"pad_token_id": size - 1, "eos_token_id": 0, "decoder_start_token_id": size - 1}
    fields = MARIAN_SIZES | ids | {"forced_eos_token_id": None} | changes
    config = MarianConfig(vocab_size=size, activation_function="swish", **fields)
    model = MarianMTModel(config).eval()
    model.final_logits_bias.normal_()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


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

PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da"}
PRE_NORM |= {"transformer-postprocess-top": "n"}
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
    ids = {"eos_id": 0, "unk_id": 1, "bos_id": -1}
    for side in ("source", "target"):
        tokens = train_pieces(folder / side, MARIAN_SENTENCES * 3, num_pieces, **ids)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    if single:
        (folder / "source.spm").rename(folder / "vocab.spm")
        (folder / "target.spm").unlink()
    else:
        with (folder / "model.vocab.yml").open("w") as file:
            for index, token in enumerate(tokens):
                entry = "? {}\n: {}\n" if index % 5 == 4 else '"{}": {}\n'
                file.write(entry.format(token, index))
        (folder / "decoder.yml").write_text("beam-size: 6\n")
    options = OPTIONS | {"dim-vocabs": [len(tokens)] * 2} | options
    arrays = {OPTIONS_ITEM: options_array(options)} | weights(options, tied)
    np.savez(folder / "model.npz", **arrays)
    return folder


def options_array(options):
    return np.frombuffer(yaml.safe_dump(options).encode() + b"\0", dtype=np.int8)


def weights(options, tied):
    draw = np.random.default_rng(0)
    width, size = options["dim-emb"], options["dim-vocabs"][0]
    pre = "_pre" if options["transformer-preprocess"] else ""
    arrays = {}

    def normal(name, *shape):
        arrays[name] = draw.normal(size=shape, scale=0.3).astype(np.float32)

    def norm(prefix, suffix=""):
        changes = draw.normal(size=(1, width), scale=0.2).astype(np.float32)
        arrays[f"{prefix}_ln_scale{suffix}"] = 1 + changes
        normal(f"{prefix}_ln_bias{suffix}", 1, width)

    if tied in ("all", "src"):
        normal("Wemb", size, width)
    else:
        normal("encoder_Wemb", size, width)
        normal("decoder_Wemb", size, width)
    if tied == "src":
        normal("decoder_ff_logit_out_Wt", size, width)
    elif not tied:
        normal("decoder_ff_logit_out_W", width, size)
    if not options.get("output-omit-bias"):
        normal("decoder_ff_logit_out_b", 1, size)
    stacks = [("encoder", "enc-depth", ["self"]), ("decoder", "dec-depth", ["self", "context"])]
    for stack, depth, attentions in stacks:
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
    return arrays


def ctranslate2_translator(folder, tokenizer):
    """Return a greedy translator that runs the same weights in CTranslate2.

    CTranslate2 computes positional encodings with other wavelengths, so Marian's are passed as a
    table.
    """
    import ctranslate2

    files = read_marian_folder(folder)
    tokens, width = files.tokens[0], files.options["dim-emb"]
    positions = sinusoidal_positions(torch.arange(1024), width, "tensor2tensor")
    arrays = {OPTIONS_ITEM: options_array(dict(files.options)), "Wpos": positions.numpy()}
    # CTranslate2 needs a bias under `output-omit-bias`, too.
    arrays["decoder_ff_logit_out_b"] = np.zeros((1, len(tokens)), dtype=np.float32)
    arrays |= files.weights
    lines = []
    for index, token in enumerate(tokens):
        lines.append(f"{json.dumps(token, ensure_ascii=False)}: {index}\n")
    with tempfile.TemporaryDirectory() as parent:
        model, vocabulary = f"{parent}/model.npz", f"{parent}/vocab.yml"
        converted = f"{parent}/ctranslate2"
        np.savez(model, **arrays)
        Path(vocabulary).write_text("".join(lines), encoding="utf-8")
        ctranslate2.converters.MarianConverter(model, [vocabulary] * 2).convert(converted)
        translator = ctranslate2.Translator(converted)

    def translate(sentences):
        # CTranslate2 appends EOS to the source.
        rows = tokenizer([*sentences])["input_ids"]
        sources = [tokenizer.convert_ids_to_tokens(ids[:-1]) for ids in rows]
        options = {"beam_size": 1, "max_decoding_length": comparison.MAX_NEW_TOKENS}
        results = translator.translate_batch(sources, **options)
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return translate
