"""Conversion from OpenNMT-py and eole, compared with the toolkits, which the tests install into
separate folders.
"""

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

from tests.opennmt_files import PAIRS, SPECIAL
from vanilla_transformer.cli import main

BOTH = ["pyonmttok", "configargparse", "rapidfuzz", "pyahocorasick"]
PACKAGES = {
    "eole": ["eole==0.6.4", "six", *BOTH],
    "opennmt-py": ["OpenNMT-py==3.5.1", "fasttext-wheel", *BOTH],
}


def toolkit_config(toolkit, text_folder, folder, shared, activation):
    """Return a training configuration; `shared` ties source, target and output projection."""
    shape = {"heads": 2, "hidden_size": 16, "transformer_ff": 32}
    shape |= {"share_embeddings": shared, "share_decoder_embeddings": shared}
    shape |= {"add_qkvbias": not shared}
    model = str(text_folder / "sp.model")
    spm = {"src_subword_model": model, "tgt_subword_model": model}
    training = {"train_steps": 20, "save_checkpoint_steps": 20, "num_workers": 0}
    training |= {"batch_size": 256, "batch_type": "tokens", "normalization": "tokens"}
    training |= {"optim": "adam", "learning_rate": 0.05}
    source, target = str(text_folder / "source"), str(text_folder / "target")
    corpus = {"path_src": source, "path_tgt": target, "transforms": ["sentencepiece"]}
    vocabulary = str(text_folder / "vocab")
    config = {"src_vocab": vocabulary, "tgt_vocab": vocabulary}
    config |= {"data": {"corpus": corpus}, "share_vocab": shared, "seed": 1}
    if toolkit == "opennmt-py":
        shape |= {"enc_layers": 2, "dec_layers": 1, "word_vec_size": 16}
        shape |= {"pos_ffn_activation_fn": activation, "position_encoding": True}
        shape |= {"encoder_type": "transformer", "decoder_type": "transformer"}
        training |= {"world_size": 1, "save_model": str(folder / "model")}
        return config | shape | spm | training
    shape["add_final_linear_bias"] = not shared  # or eole forgets the encoder's
    shape |= {"architecture": "transformer", "mlp_activation_fn": activation}
    shape |= {"norm_eps": 1e-4, "encoder": {"layers": 2}, "decoder": {"layers": 1}}
    positions = {"position_encoding_type": "SinusoidalInterleaved"}
    shape["embeddings"] = {"word_vec_size": 16} | positions
    training |= {"world_size": 0, "model_path": str(folder / "model")}
    config |= {"transforms": ["sentencepiece"], "model": shape, "training": training}
    return config | {"transforms_configs": {"sentencepiece": spm}}


def encoded(text_folder):
    """Return the source ids of both toolkits: SentencePiece pieces, special tokens first, no
    EOS.
    """
    model = str(text_folder / "sp.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    vocabulary = [*SPECIAL, *(text_folder / "vocab").read_text().split("\n")[:-1]]
    numbers = {}
    for number, piece in enumerate(vocabulary):
        numbers.setdefault(piece, number)
    sources = []
    for pair in PAIRS:
        source = pieces.encode(pair.source, out_type=str)
        sources.append([numbers.get(piece, 0) for piece in source])
    return sources


@pytest.fixture(scope="module", params=list(PACKAGES))
def toolkit(request, tmp_path_factory):
    """Install a toolkit without the dependencies that the tested parts do not use."""
    target = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--target", str(target), *PACKAGES[request.param]]
    installed = subprocess.run(command, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return request.param, target


KINDS = [(True, "relu"), (False, "gelu")]


@torch.no_grad()
@pytest.mark.parametrize(("shared", "activation"), KINDS, ids=["shared", "separate"])
def test_opennmt_has_the_tokens_and_logits_of_the_toolkit(
    shared, activation, toolkit, text_folder, tmp_path, record_property
):
    name, packages = toolkit
    folder = tmp_path / "theirs"
    folder.mkdir()
    config = toolkit_config(name, text_folder, folder, shared, activation)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    sources = encoded(text_folder)
    program = Path(__file__).parents[3] / "toolkit_models.py"
    ended = subprocess.run(
        [sys.executable, str(program), name, str(folder)],
        env=os.environ | {"PYTHONPATH": str(packages)},
        input=json.dumps(sources),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    trained = folder / "model" if name == "eole" else folder / "model_step_20.pt"
    ours = tmp_path / "ours"
    assert main(["convert", str(trained), str(ours), "--source_format", name]) == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(ours)
    tokenizer = AutoTokenizer.from_pretrained(ours)
    answers = json.loads((folder / "answers.json").read_text())
    identical, largest = 0, 0.0
    for pair, source, theirs in zip(PAIRS, sources, answers, strict=True):
        inputs = tokenizer(pair.source, return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [*source, tokenizer.eos_token_id]
        options = {"num_beams": 1, "max_new_tokens": 12, "eos_token_id": None}
        tokens = model.generate(**inputs, **options)[0].tolist()
        identical += tokens == theirs["tokens"]
        inputs["decoder_input_ids"] = torch.tensor([theirs["tokens"][:-1]])
        difference = model(**inputs).logits[0] - torch.tensor(theirs["logits"])
        largest = max(largest, float(difference.abs().max()))
    logging.getLogger(__name__).info("%s: largest logit difference %.1e", name, largest)
    assert identical == len(PAIRS)
    assert largest < 1e-3
