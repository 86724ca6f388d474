"""Converted folders in Bergamot, by npm's package in Node and in the page of `examples/pocket`, and
in Marian.

Needs `node`, `npm` and its registry; the page also needs Chromium and its driver, and Marian needs
`pymarian`.
"""

import re
import subprocess
from operator import eq
from pathlib import Path
from typing import NamedTuple

import pytest
import sacrebleu

from tests.browser import check_page
from tests.docs_pages import ROOT, blocks
from tests.node import install, require
from tests.tiny_runs import no_scores
from vanilla_transformer.data.demo_corpus import read_demo_corpus, write_demo_corpus
from vanilla_transformer.extensions.conversion import WRITERS, bergamot
from vanilla_transformer.extensions.conversion.comparison import Comparison
from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

EXAMPLE = ROOT / "examples/pocket"
BUILD = (EXAMPLE / "build.sh").read_text()
PACKAGE = re.search(r"@browsermt/bergamot-translator@[\d.]+", BUILD)[0]
TAUGHT = {
    "tokenizer_model": "sentencepiece",
    "sinusoid_layout": "tensor2tensor",
    "max_steps": 800,
    "save_steps": 800,
}


class Converted(NamedTuple):
    folder: Path
    comparisons: dict[str, Comparison]
    scores: dict[str, float]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Train a model for a short time."""
    folder = tmp_path_factory.mktemp("models")
    write_demo_corpus(folder / "corpus")
    options = {"output_dir": folder / "ours"} | TAUGHT
    for name in ("train", "validation"):
        options[f"{name}_source"] = folder / f"corpus/{name}.en"
        options[f"{name}_target"] = folder / f"corpus/{name}.de"
    flags = []
    for name, value in options.items():
        flags += [f"--{name}", str(value)]
    train(parse_recipe([str(find_recipe("demo")), *flags]), evaluate=no_scores)
    return folder / "ours"


@pytest.fixture(scope="module")
def converted(ours, tmp_path_factory):
    """Convert the model where Node finds npm's package, and score what Bergamot translates."""
    require("node")
    folder = tmp_path_factory.mktemp("library")
    install(folder, PACKAGE)
    pairs = read_demo_corpus("test", 500)
    sources, references = map(list, zip(*pairs, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        comparisons = WRITERS["bergamot"](ours, folder / "converted", sources[:200])
        engines = dict(bergamot._find_engines(folder / "converted"))
        scores = {}
        for name, translate in engines.items():
            bleu = sacrebleu.corpus_bleu(translate(sources), [references])
            scores[name] = bleu.score
    return Converted(folder, comparisons, scores)


def test_bergamot_translates_200_of_200_sentences_as_we_do_in_float32(converted):
    float32 = converted.comparisons["float32"]
    assert (float32.num_sentences, float32.num_identical) == (200, 200)


def test_bergamot_scores_as_high_in_int8(converted):
    assert converted.scores["float32"] > 5
    assert converted.scores["int8"] > converted.scores["float32"] - 0.3


def test_docs_commands_of_node_translate_as_the_conversion_does(converted):
    """The page's folder is `runs/pocket-bergamot`; of several lines at once the longest limits all
    translations.
    """
    first, _ = blocks(ROOT / "docs/pocket_model.md", "sh")
    install_line, translate_line = first.splitlines()
    assert install_line == f"npm install {PACKAGE}"
    (converted.folder / "runs").mkdir()
    exported, folder = converted.folder / "converted", converted.folder
    (folder / "runs/pocket-bergamot").symlink_to(exported)
    sources = [pair.source for pair in read_demo_corpus("test", 100)]
    (folder / "test.en").write_text("".join(f"{source}\n" for source in sources))
    more = translate_line.replace("translate.cjs", "translate.cjs int8 64")
    more = more.replace("pocket.de", "more.de")
    for line in (translate_line, more):
        subprocess.run(line, shell=True, check=True, cwd=converted.folder, timeout=600)
    one = (folder / "pocket.de").read_text().splitlines()
    several = (folder / "more.de").read_text().splitlines()
    assert len(one) == len(several) == 100
    assert sum(map(eq, one, several)) >= 95
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(converted.folder)
        engines = dict(bergamot._find_engines(exported))
        assert one == engines["int8"](sources)


def test_pocket_page_translates_after_its_server_has_stopped(converted, browser, tmp_path):
    check_page(EXAMPLE, converted.folder / "converted", tmp_path / "site", browser)


def test_marian_translates_200_of_200_sentences_as_we_do(ours, tmp_path, monkeypatch):
    pytest.importorskip("pymarian")
    monkeypatch.setattr("shutil.which", lambda program: None)
    sentences = [pair.source for pair in read_demo_corpus("test", 200)]
    comparison = WRITERS["bergamot"](ours, tmp_path / "converted", sentences)
    assert (comparison.num_sentences, comparison.num_identical) == (200, 200)
