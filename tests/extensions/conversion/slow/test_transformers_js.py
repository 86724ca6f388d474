"""Converted folders in the stock library of transformers.js: in Node, and in the page of
`examples/browser`.

Needs `node`, `npm` and its registry; the page also needs Chromium and its driver.
"""

import json
import operator
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from transformers import AutoTokenizer

from tests.browser import check_page
from tests.node import install, require
from tests.tiny_runs import no_scores
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.demo_corpus import read_demo_corpus, write_demo_corpus
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.common import load_model
from vanilla_transformer.extensions.conversion.comparison import Comparison, greedy_translator
from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

EXAMPLE = Path(__file__).parents[4] / "examples/browser"
_BUILD = (EXAMPLE / "build.sh").read_text()
_LIBRARY = re.search(r"@huggingface/transformers@[\d.]+", _BUILD)[0]
_SCRIPT = """
import fs from "node:fs";
import { env, pipeline } from "@huggingface/transformers";
const [folder, dtype, file] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = folder;
const { tokenizer, model } = await pipeline("translation", "converted", { dtype });
const rows = [];
for (const batch of JSON.parse(fs.readFileSync(file)))
    rows.push(...(await model.generate({ ...tokenizer(batch, { padding: true }), max_new_tokens: 128 })).tolist());
console.log(JSON.stringify(rows.map((row) => row.map(Number))));
"""


class Converted(NamedTuple):
    folder: Path
    sentences: list[str]
    outputs: list[list[int]]
    comparisons: dict[str, Comparison]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Train the model of the demo for a short time and convert it."""
    folder = tmp_path_factory.mktemp("models")
    write_demo_corpus(folder / "corpus")
    options = {"output_dir": folder / "ours", "max_steps": 400, "save_steps": 400}
    for name in ("train", "validation"):
        options[f"{name}_source"] = folder / f"corpus/{name}.en"
        options[f"{name}_target"] = folder / f"corpus/{name}.de"
    flags = []
    for name, value in options.items():
        flags += [f"--{name}", str(value)]
    train(parse_recipe([str(find_recipe("demo")), *flags]), evaluate=no_scores)
    model = load_model(VanillaTransformerForConditionalGeneration, folder / "ours")
    tokenizer = AutoTokenizer.from_pretrained(folder / "ours")
    sentences = [pair.source for pair in read_demo_corpus("test", 200)]
    outputs = greedy_translator(model, tokenizer)(sentences)
    exported = folder / "converted"
    comparisons = WRITERS["transformers.js"](folder / "ours", exported, sentences)
    return Converted(folder, sentences, outputs, comparisons)


@pytest.fixture(scope="module")
def generate_in_node(tmp_path_factory):
    """Return a function from a folder, a data type and batches to token ids, or skip the test."""
    library = tmp_path_factory.mktemp("library")
    install(library, _LIBRARY)
    (library / "generate.mjs").write_text(_SCRIPT)

    def generate(folder, dtype, batches):
        (library / "batches.json").write_text(json.dumps(batches))
        command = [require("node"), "generate.mjs", f"{folder}/", dtype, "batches.json"]
        options = {"capture_output": True, "text": True, "timeout": 600}
        ended = subprocess.run(command, cwd=library, **options)
        assert ended.returncode == 0, ended.stderr
        outputs = []
        for row in json.loads(ended.stdout.splitlines()[-1]):
            outputs.append([token for token in row if token > 2])
        return outputs

    return generate


def test_to_transformers_js_writes_at_most_3_megabytes_in_int8(converted):
    comparisons = converted.comparisons
    assert comparisons.keys() == {"fp32", "fp16", "q8"}
    for comparison in comparisons.values():
        assert comparison.num_sentences == 200
    assert comparisons["fp32"].num_identical == 200
    paths = (converted.folder / "converted/onnx").iterdir()
    sizes = {path.name: path.stat().st_size for path in paths}
    parts = {}
    for suffix in ("", "_fp16", "_quantized"):
        encoder = sizes[f"encoder_model{suffix}.onnx"]
        parts[suffix] = encoder + sizes[f"decoder_model_merged{suffix}.onnx"]
    assert len(sizes) == 2 * len(parts)
    assert parts["_quantized"] <= 3e6
    assert parts["_fp16"] < 0.55 * parts[""]
    # The merged decoder stores its weights once, and the embedding is the output projection.
    num_weights = 2000 * 128 + 2 * (8 * 128**2 + 2 * 128 * 512)
    size = sizes["decoder_model_merged.onnx"]
    assert 4 * num_weights < size < 4.2 * num_weights


def test_transformers_js_generates_greedy_tokens_in_float32(converted, generate_in_node):
    # Sentences of a batch end at different steps.
    assert len({*map(len, converted.outputs)}) > 3
    batches = [[sentence] for sentence in converted.sentences[:100]]
    batches.append(converted.sentences[100:])
    assert generate_in_node(converted.folder, "fp32", batches) == converted.outputs


# After some hundred updates the model is unsure, so that rounding to int8 decides more often than
# in a trained one.
@pytest.mark.parametrize(("dtype", "num_same"), [("q8", 140), ("fp16", 180)])
def test_rounded_models_generate_almost_the_same(converted, generate_in_node, dtype, num_same):
    batches = [[sentence] for sentence in converted.sentences]
    outputs = generate_in_node(converted.folder, dtype, batches)
    assert len(outputs) == len(converted.outputs)
    same = sum(map(operator.eq, outputs, converted.outputs))
    assert same >= num_same


def test_browser_page_translates_after_its_server_has_stopped(converted, browser, tmp_path):
    check_page(EXAMPLE, converted.folder / "converted", tmp_path / "site", browser)


EXAMPLES = [EXAMPLE, EXAMPLE.with_name("pocket")]


@pytest.mark.parametrize("example", EXAMPLES, ids=["browser", "pocket"])
@pytest.mark.parametrize("arguments", [[], ["missing", "site"]])
def test_build_names_missing_arguments_and_models(example, arguments, tmp_path):
    command = [example / "build.sh", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
