"""A Marian folder is translated as by this package: by releases of transformers without it, and by
CTranslate2.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import ctranslate2
import pytest
from ctranslate2.converters import TransformersConverter
from transformers import AutoTokenizer

from tests.releases import install_release
from tests.tiny import tiny_model
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.loading.model_folders import save_model_folder

WITHOUT_PACKAGE = Path(__file__).parents[3] / "without_package.py"


@pytest.fixture(scope="module")
def translated(tiny_tokenizer, tmp_path_factory):
    """Return a Marian folder, 200 sentences, and our translations of them by one and by four
    beams.
    """
    parent, model = tmp_path_factory.mktemp("models"), tiny_model(layer_norm_eps=1e-5)
    sentences = [pair.source for pair in read_demo_corpus("test", 199)]
    sentences.append("Öl </s> 3 €")
    folder = save_model_folder(model, tiny_tokenizer, parent / "ours")
    WRITERS["marian"](folder, parent / "marian", sentences[:4])
    batch = tiny_tokenizer(sentences, padding=True, return_tensors="pt")
    search = {"max_length": 48, "length_penalty_type": "power"}
    search["max_new_tokens_beyond_source"] = None
    lines = []
    for beams in (1, 4):
        tokens = model.generate(**batch, num_beams=beams, **search)
        lines.append(tiny_tokenizer.batch_decode(tokens, skip_special_tokens=True))
        assert len({*lines[-1]}) > 50
    return parent / "marian", sentences, lines


def check_equal(texts, lines):
    """Check the translations of both searches; rounding may decide between two beams of a random
    model.
    """
    for of_beams, expected, least in zip(texts, lines, (200, 196), strict=True):
        assert sum(map(str.__eq__, of_beams, expected)) >= least


RELEASES = ["4.57.6", "5.0.0", "5.17.0", None]


@pytest.mark.parametrize("release", RELEASES, ids=lambda name: name or "installed")
def test_marian_folder_translates_without_this_package(release, translated, tmp_path):
    """uv installs the release beside this environment's torch, in a folder that Python searches
    first.
    """
    folder, sentences, lines = translated
    if release is not None:
        install_release(release, tmp_path / "release")
    options = {"input": json.dumps(sentences), "capture_output": True, "text": True}
    path = {"PYTHONPATH": str(tmp_path / "release"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, WITHOUT_PACKAGE, "marian", folder]
    process = subprocess.run(command, env=os.environ | path, **options)
    assert process.returncode == 0, process.stderr
    used, texts = json.loads(process.stdout)
    assert release in (None, used)
    check_equal(texts, lines)


def test_marian_folder_translates_by_the_converter_of_ctranslate2(translated, tmp_path):
    folder, sentences, lines = translated
    TransformersConverter(str(folder)).convert(str(tmp_path / "fast"))
    translator = ctranslate2.Translator(str(tmp_path / "fast"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sources = [*map(tokenizer.convert_ids_to_tokens, tokenizer(sentences)["input_ids"])]
    options = {"length_penalty": 0.6, "max_decoding_length": 47}
    by_beams = []
    for beams in (1, 4):
        results = translator.translate_batch(sources, beam_size=beams, **options)
        best = [result.hypotheses[0] for result in results]
        rows = [*map(tokenizer.convert_tokens_to_ids, best)]
        by_beams.append(tokenizer.batch_decode(rows, skip_special_tokens=True))
    check_equal(by_beams, lines)
