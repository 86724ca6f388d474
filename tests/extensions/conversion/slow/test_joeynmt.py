"""Conversion from JoeyNMT, compared with JoeyNMT itself, which the test installs into a separate
folder.
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
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.foreign_models import joey_folder
from tests.marian_files import MARIAN_SENTENCES
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.conversion import READERS


@pytest.fixture(scope="module")
def joey_path(tmp_path_factory):
    """Install JoeyNMT without its dependencies: it pins an old protobuf that the tested parts do
    not use.
    """
    target = tmp_path_factory.mktemp("joeynmt")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--target", str(target), "joeynmt==2.3.0", "subword-nmt"]
    command += ["importlib-metadata<9", "zipp"]
    installed = subprocess.run(command, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return target


KINDS = [(True, {}), (False, {"layer_norm": "pre", "activation": "gelu"})]


@torch.no_grad()
@pytest.mark.parametrize(("same", "changes"), KINDS, ids=["post", "pre"])
def test_from_joeynmt_has_the_logits_and_tokens_of_joeynmt(same, changes, joey_path, tmp_path):
    folder = joey_folder(tmp_path / "joey", same, **changes)
    texts = [pair.source for pair in read_demo_corpus("test", 200)]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sp.model"))
    names = (folder / "src_vocab.txt").read_text().split("\n")
    sources = []
    for text in texts:
        words = [*pieces.encode(text, out_type=str), "</s>"]
        sources.append([names.index(word) if word in names else 0 for word in words])
    program = Path(__file__).parents[3] / "toolkit_models.py"
    ended = subprocess.run(
        [sys.executable, str(program), "joeynmt", str(folder)],
        env=os.environ | {"PYTHONPATH": str(joey_path)},
        input=json.dumps(sources),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    READERS["joeynmt"](folder, tmp_path / "ours", MARIAN_SENTENCES)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer(texts)["input_ids"] == sources
    answers = json.loads((folder / "answers.json").read_text())
    largest = 0.0
    for source, theirs in zip(sources, answers, strict=True):
        ids = torch.tensor([source])
        ours = model.generate(ids, num_beams=1, max_new_tokens=12, eos_token_id=None)
        assert ours[0].tolist() == theirs["tokens"]
        logits = model(ids, decoder_input_ids=ours[:, :-1]).logits[0]
        difference = logits - torch.tensor(theirs["logits"])
        largest = max(largest, float(difference.abs().max()))
    message = "JoeyNMT: %d identical, largest logit difference %.1e"
    logging.getLogger(__name__).info(message, len(sources), largest)
    assert largest < 1e-3
