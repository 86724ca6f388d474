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
    sentences = [pair.source for pair in read_demo_corpus("test", 199)] + ["Öl </s> 3 €"]
    folder = save_model_folder(model, tiny_tokenizer, parent / "ours")
    WRITERS["marian"](folder, parent / "marian", sentences[:4])
    batch = tiny_tokenizer(sentences, padding=True, return_tensors="pt")
    search = {
        "max_length": 48,
        "max_new_tokens_beyond_source": None,
        "length_penalty_type": "power",
    }
    lines = [
        tiny_tokenizer.batch_decode(
            model.generate(**batch, num_beams=beams, **search), skip_special_tokens=True
        )
        for beams in (1, 4)
    ]
    assert all(len({*of_beams}) > 50 for of_beams in lines)
    return parent / "marian", sentences, lines


def check_equal(found, lines):
    """Check the translations of both searches; rounding may decide between two beams of a random
    model.
    """
    for of_beams, expected, least in zip(found, lines, (200, 196), strict=True):
        assert sum(map(str.__eq__, of_beams, expected)) >= least


@pytest.mark.parametrize(
    "release", ["4.57.6", "5.0.0", "5.17.0", None], ids=lambda release: release or "installed"
)
def test_marian_folder_translates_without_this_package(release, translated, tmp_path):
    """uv installs the release beside this environment's torch, in a folder that Python searches
    first.
    """
    folder, sentences, lines = translated
    if release is not None:
        install_release(release, tmp_path / "release")
    process = subprocess.run(
        [sys.executable, WITHOUT_PACKAGE, "marian", folder],
        input=json.dumps(sentences),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "release"), "HF_HUB_OFFLINE": "1"},
    )
    assert process.returncode == 0, process.stderr
    used, found = json.loads(process.stdout)
    assert release in (None, used)
    check_equal(found, lines)


def test_marian_folder_translates_by_the_converter_of_ctranslate2(translated, tmp_path):
    folder, sentences, lines = translated
    TransformersConverter(str(folder)).convert(str(tmp_path / "fast"))
    translator, tokenizer = (
        ctranslate2.Translator(str(tmp_path / "fast")),
        AutoTokenizer.from_pretrained(folder),
    )
    sources = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(sentences)["input_ids"]]
    by_beams = []
    for beams in (1, 4):
        results = translator.translate_batch(
            sources, beam_size=beams, length_penalty=0.6, max_decoding_length=47
        )
        found = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        by_beams.append(tokenizer.batch_decode(found, skip_special_tokens=True))
    check_equal(by_beams, lines)
