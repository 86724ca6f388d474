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

PACKAGES = {
    "eole": ["eole==0.6.4", "pyonmttok", "configargparse", "rapidfuzz", "pyahocorasick", "six"],
    "opennmt-py": [
        "OpenNMT-py==3.5.1",
        "pyonmttok",
        "configargparse",
        "rapidfuzz",
        "pyahocorasick",
        "fasttext-wheel",
    ],
}


def toolkit_config(toolkit, text_folder, folder, shared, activation):
    """Return a training configuration; `shared` ties source, target and output projection."""
    shape = {"heads": 2, "hidden_size": 16, "transformer_ff": 32}
    shape |= {
        "share_embeddings": shared,
        "share_decoder_embeddings": shared,
        "add_qkvbias": not shared,
    }
    spm = {f"{side}_subword_model": str(text_folder / "sp.model") for side in ("src", "tgt")}
    training = {
        "train_steps": 20,
        "save_checkpoint_steps": 20,
        "batch_size": 256,
        "batch_type": "tokens",
    }
    training |= {
        "num_workers": 0,
        "optim": "adam",
        "learning_rate": 0.05,
        "normalization": "tokens",
    }
    corpus = {"path_src": str(text_folder / "source"), "path_tgt": str(text_folder / "target")}
    config = {f"{side}_vocab": str(text_folder / "vocab") for side in ("src", "tgt")}
    config |= {
        "data": {"corpus": corpus | {"transforms": ["sentencepiece"]}},
        "share_vocab": shared,
        "seed": 1,
    }
    if toolkit == "opennmt-py":
        shape |= {
            "enc_layers": 2,
            "dec_layers": 1,
            "word_vec_size": 16,
            "pos_ffn_activation_fn": activation,
        }
        shape |= {
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "position_encoding": True,
        }
        return (
            config | shape | spm | training | {"world_size": 1, "save_model": str(folder / "model")}
        )
    shape["add_final_linear_bias"] = not shared  # or eole forgets the encoder's
    shape |= {"architecture": "transformer", "mlp_activation_fn": activation, "norm_eps": 1e-4}
    shape |= {"encoder": {"layers": 2}, "decoder": {"layers": 1}}
    shape["embeddings"] = {"word_vec_size": 16, "position_encoding_type": "SinusoidalInterleaved"}
    config |= {
        "transforms": ["sentencepiece"],
        "transforms_configs": {"sentencepiece": spm},
        "model": shape,
    }
    return config | {"training": training | {"world_size": 0, "model_path": str(folder / "model")}}


def encoded(text_folder):
    """Return the source ids of both toolkits: SentencePiece pieces, special tokens first, no
    EOS.
    """
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(text_folder / "sp.model"))
    vocabulary = [*SPECIAL, *(text_folder / "vocab").read_text().split("\n")[:-1]]
    sources = [pieces.encode(pair.source, out_type=str) for pair in PAIRS]
    return [
        [vocabulary.index(piece) if piece in vocabulary else 0 for piece in source]
        for source in sources
    ]


@pytest.fixture(scope="module", params=list(PACKAGES))
def toolkit(request, tmp_path_factory):
    """Install a toolkit without the dependencies that the tested parts do not use."""
    target = tmp_path_factory.mktemp(request.param)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
    ]
    installed = subprocess.run([*command, *PACKAGES[request.param]], capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return request.param, target


@torch.no_grad()
@pytest.mark.parametrize(
    ("shared", "activation"), [(True, "relu"), (False, "gelu")], ids=["shared", "separate"]
)
def test_opennmt_has_the_tokens_and_logits_of_the_toolkit(
    shared, activation, toolkit, text_folder, tmp_path, record_property
):
    name, packages = toolkit
    folder = tmp_path / "theirs"
    folder.mkdir()
    config = toolkit_config(name, text_folder, folder, shared, activation)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    sources = encoded(text_folder)
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parents[3] / "toolkit_models.py"), name, str(folder)],
        env=os.environ | {"PYTHONPATH": str(packages)},
        input=json.dumps(sources),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    given = folder / "model" if name == "eole" else folder / "model_step_20.pt"
    assert main(["convert", str(given), str(tmp_path / "ours"), "--source_format", name]) == 0
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    answers = json.loads((folder / "answers.json").read_text())
    identical, largest = 0, 0.0
    for pair, source, theirs in zip(PAIRS, sources, answers, strict=True):
        inputs = tokenizer(pair.source, return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [*source, tokenizer.eos_token_id]
        options = {"num_beams": 1, "max_new_tokens": 12, "eos_token_id": None}
        identical += model.generate(**inputs, **options)[0].tolist() == theirs["tokens"]
        logits = model(**inputs, decoder_input_ids=torch.tensor([theirs["tokens"][:-1]])).logits[0]
        largest = max(largest, float((logits - torch.tensor(theirs["logits"])).abs().max()))
    logging.getLogger(__name__).info("%s: largest logit difference %.1e", name, largest)
    assert identical == len(PAIRS)
    assert largest < 1e-3
