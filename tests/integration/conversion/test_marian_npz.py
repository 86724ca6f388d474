"""Conversion from Marian's own files, compared with CTranslate2, which reads the same files.

Marian is not on the package index, so the tests write files in its layout with random weights.
"""

import logging

import numpy as np
import pytest
import sentencepiece
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianTokenizer

from vanilla_transformer.cli import main
from vanilla_transformer.conversion.marian_npz import from_marian_npz, model_from_marian_npz, read_marian
from vanilla_transformer.data.demo_corpus import read_demo_corpus

SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Grass"]
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
PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}


def marian_folder(folder, tied=True, single=False, **options):
    folder.mkdir()
    (folder / "text").write_text("\n".join(SENTENCES * 3))
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"),
            model_prefix=str(folder / side),
            vocab_size=40,
            hard_vocab_limit=False,
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    tokens = [model.id_to_piece(index) for index in range(len(model))]
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
    width, inner, size = options["dim-emb"], options["transformer-dim-ffn"], options["dim-vocabs"][0]
    pre = "_pre" if options["transformer-preprocess"] else ""
    found = {}

    def normal(name, *shape):
        found[name] = draw.normal(size=shape, scale=0.3).astype(np.float32)

    def norm(prefix, suffix=""):
        found[f"{prefix}_ln_scale{suffix}"] = 1 + draw.normal(size=(1, width), scale=0.2).astype(np.float32)
        normal(f"{prefix}_ln_bias{suffix}", 1, width)

    for name in ["Wemb"] if tied else ["encoder_Wemb", "decoder_Wemb"]:
        normal(name, size, width)
    if not tied:
        normal("decoder_ff_logit_out_W", width, size)
    normal("decoder_ff_logit_out_b", 1, size)
    for stack, depth, attentions in (
        ("encoder", "enc-depth", ["self"]),
        ("decoder", "dec-depth", ["self", "context"]),
    ):
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


@pytest.mark.parametrize(
    "changes",
    [{}, {"tied": False, "transformer-ffn-activation": "relu"}, PRE_NORM | {"transformer-ffn-activation": "gelu"}],
    ids=["OPUS-MT", "untied", "pre-norm"],
)
@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_from_marian_npz_generates_the_tokens_of_ctranslate2(changes, count, tmp_path):
    folder = marian_folder(tmp_path / "marian", **changes)
    many = [pair.source for pair in read_demo_corpus("test", count)]
    comparison = from_marian_npz(folder, tmp_path / "ours", SENTENCES if count == 3 else many)
    logging.getLogger(__name__).info("Marian npz: %s", comparison)
    assert (comparison.num_sentences, comparison.num_identical) == (count, count)
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    assert type(tokenizer) is MarianTokenizer and model.config.vocab_size == len(tokenizer)
    assert model.generation_config.decoder_start_token_id == tokenizer.pad_token_id


def test_from_marian_npz_reads_a_sentencepiece_vocabulary(tmp_path):
    folder = marian_folder(tmp_path / "marian", single=True)
    assert from_marian_npz(folder, tmp_path / "ours", SENTENCES).num_identical == 3


def test_from_marian_npz_never_generates_the_added_entry(tmp_path):
    model = model_from_marian_npz(read_marian(marian_folder(tmp_path / "marian")))
    pad = model.config.pad_token_id
    assert model.lm_head.bias[pad] == -1e9 and not model.lm_head.weight[pad].any()


def test_from_marian_npz_lists_every_reason_and_writes_nothing(tmp_path):
    changes = {
        "transformer-decoder-autoreg": "rnn",
        "transformer-ffn-activation": "tanh",
        "transformer-postprocess": "an",
    }
    folder = marian_folder(tmp_path / "marian", **changes)
    with pytest.raises(
        ValueError, match="'rnn' instead of self-attention; its activation function is 'tanh'; its normalization is"
    ):
        from_marian_npz(folder, tmp_path / "ours", SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("model.npz", "one file *.npz"),
        ("model.vocab.yml", "one file *.yml"),
        ("target.spm", "neither target.spm nor vocab.spm"),
    ],
)
def test_from_marian_npz_names_a_missing_file(missing, message, tmp_path, capsys):
    folder = marian_folder(tmp_path / "marian")
    (folder / missing).unlink()
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--source_format", "marian-npz"]) == 2
    assert message in capsys.readouterr().err


def test_read_marian_refuses_other_arrays(tmp_path):
    folder = marian_folder(tmp_path / "marian")
    np.savez(folder / "model.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="must contain Marian's options"):
        read_marian(folder)
