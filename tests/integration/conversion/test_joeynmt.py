"""Conversion from JoeyNMT, compared with JoeyNMT itself, which the test installs into a separate folder."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.cli import main
from vanilla_transformer.conversion.joeynmt import from_joeynmt, model_from_joeynmt, read_joeynmt
from vanilla_transformer.data.demo_corpus import read_demo_corpus

SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Grass"]
SIDE = {"type": "transformer", "hidden_size": 16, "ff_size": 32, "num_heads": 2, "num_layers": 2, "dropout": 0.1}


def joey_folder(folder, same=True, **changes):
    folder.mkdir()
    (folder / "text").write_text("\n".join(SENTENCES * 3))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / "sp"),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sp.model"))
    tokens = ["<unk>", "<pad>", "<s>", "</s>", *(model.id_to_piece(index) for index in range(3, len(model)))]
    for side, kept in (("src", tokens), ("trg", tokens if same else tokens[:-3])):
        (folder / f"{side}_vocab.txt").write_text("\n".join(kept) + "\n")
    side = SIDE | {"layer_norm": "post", "embeddings": {"embedding_dim": 16, "scale": True, "dropout": 0.0}} | changes
    config = {
        "model": {"tied_embeddings": same, "tied_softmax": same, "encoder": side, "decoder": side},
        "data": {
            name: {"lang": name, "level": "bpe", "tokenizer_cfg": {"model_file": "elsewhere/sp.model"}}
            for name in ("src", "trg")
        },
        "testing": {"beam_size": 5, "beam_alpha": 1.0, "max_output_length": 12},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def joey_path(tmp_path_factory):
    """Install JoeyNMT without its dependencies: it pins an old protobuf that the tested parts do not use."""
    target = tmp_path_factory.mktemp("joeynmt")
    packages = ["joeynmt==2.3.0", "subword-nmt", "importlib-metadata<9", "zipp"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *packages]
    installed = subprocess.run(command, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return target


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(
    ("same", "changes"), [(True, {}), (False, {"layer_norm": "pre", "activation": "gelu"})], ids=["post", "pre"]
)
def test_from_joeynmt_has_the_logits_and_tokens_of_joeynmt(same, changes, joey_path, tmp_path):
    folder = joey_folder(tmp_path / "joey", same, **changes)
    texts = [pair.source for pair in read_demo_corpus("test", 200)]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sp.model"))
    names = (folder / "src_vocab.txt").read_text().split("\n")
    sources = [
        [names.index(piece) if piece in names else 0 for piece in [*pieces.encode(text, out_type=str), "</s>"]]
        for text in texts
    ]
    program = Path(__file__).parents[2] / "joeynmt_model.py"
    ended = subprocess.run(
        [sys.executable, str(program), str(folder)],
        env=os.environ | {"PYTHONPATH": str(joey_path)},
        input=json.dumps(sources),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    from_joeynmt(folder, tmp_path / "ours", SENTENCES)
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    assert tokenizer(texts)["input_ids"] == sources
    largest = 0.0
    for source, theirs in zip(sources, json.loads(ended.stdout.splitlines()[-1]), strict=True):
        ids = torch.tensor([source])
        ours = model.generate(ids, num_beams=1, max_new_tokens=12, eos_token_id=None)
        assert ours[0].tolist() == theirs["tokens"]
        logits = model(ids, decoder_input_ids=ours[:, :-1]).logits[0]
        largest = max(largest, float((logits - torch.tensor(theirs["logits"])).abs().max()))
    logging.getLogger(__name__).info("JoeyNMT: %d identical, largest logit difference %.1e", len(sources), largest)
    assert largest < 1e-4


def test_from_joeynmt_lists_every_reason_and_writes_nothing(tmp_path, capsys):
    folder = joey_folder(tmp_path / "joey", alpha=0.5, activation="tanh")
    torch.save({"model_state": {}}, folder / "best.ckpt")
    with pytest.raises(
        ValueError, match=r"activation function is 'tanh'; its residual connections are weighted \(`alpha`\)"
    ):
        model_from_joeynmt(read_joeynmt(folder))
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--source_format", "joeynmt"]) == 2
    assert "'tanh'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]


def test_read_joeynmt_refuses_another_tokenizer(tmp_path):
    folder = joey_folder(tmp_path / "joey")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"]["src"] |= {"level": "word", "lowercase": True}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ValueError, match="level of src is 'word', not 'bpe'; src is lowercased"):
        read_joeynmt(folder)


@pytest.mark.parametrize(
    ("missing", "message"),
    [("best.ckpt", "best.ckpt"), ("trg_vocab.txt", "trg_vocab"), ("sp.model", "elsewhere/sp.model")],
)
def test_read_joeynmt_names_a_missing_file(missing, message, tmp_path):
    folder = joey_folder(tmp_path / "joey")
    torch.save({"model_state": {}}, folder / "best.ckpt")
    (folder / missing).unlink()
    with pytest.raises(OSError, match=message):
        read_joeynmt(folder)
