"""The product works without any extension: its folder and its row in the table are deleted."""

import ast
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.forked import run_python
from vanilla_transformer import extensions
from vanilla_transformer.extensions import DOCUMENTS, EXTENSIONS, INITIAL_MODEL, STRESS_TABLE, find, require

PACKAGE = Path(__file__).parents[2] / "vanilla_transformer"
TRAIN = """
import json
import sys
import vanilla_transformer
from vanilla_transformer.cli import COMMANDS, find_command, main

assert vanilla_transformer.__file__.startswith(sys.argv[1])
for name in COMMANDS:
    assert callable(find_command(name))
sizes = "--vocab_size 300 --d_model 16 --max_tokens 256 --max_steps 2 --logging_steps 1 --eval_steps 2".split()
for side in ("encoder", "decoder"):
    sizes += f"--{side}_layers 1 --{side}_attention_heads 2 --{side}_ffn_dim 16".split()
texts = "--train_source train.a --train_target train.b".split()
texts += "--validation_source validation.a --validation_target validation.b".split()
assert main(["train", *texts, *sizes, "--output_dir", "run"]) == 0
assert main(["translate", "run", "--input", "validation.a", "--output", "out.b"]) == 0
assert main(["evaluate", "run", "--source", "validation.a", "--target", "validation.b"]) == 0
train, translate = ["train", *texts, *sizes, "--output_dir", "other"], ["translate", "run", "A sentence."]
for command, *flags in json.loads(sys.argv[2]):
    assert main([*{"train": train, "translate": translate}[command], *flags]) == 2
"""
# Commands with flags and recipe keys that need an extension.
NEEDING = {
    "alignments": [["train", "--train_alignments", "agreement"]],
    "augmentation": [["train", "--augment", "{typos: 0.1}"]],
    "cleaning": [["train", "--score", "{forward: a, backward: b, keep: 0.5}"]],
    "conversion": [["translate", "--backend", "onnx"]],
    "quality": [["train", "--best_metric", "comet"], ["translate", "--rerank_quality", "run"]],
    "scale_out": [
        ["translate", "--workers", "2"],
        ["translate", "--engine", "ray", "--output", "out"],
    ],
    "terms": [["translate", "--glossary", "train.a"]],
    "reranking": [["translate", "--mbr", "chrf"], ["translate", "--num_beams", "2", "--rerank_reverse", "run"]],
}


def delete(name, package):
    """Delete the folder of an extension, and its row."""
    shutil.rmtree(package / "extensions" / name)
    table = package / "extensions" / "__init__.py"
    tree = ast.parse(table.read_text())
    (rows,) = [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.target.id == "EXTENSIONS"]
    place = [key.value for key in rows.keys].index(name)
    del rows.keys[place], rows.values[place]
    table.write_text(ast.unparse(tree))


@pytest.mark.parametrize("name", EXTENSIONS)
def test_everything_else_works_without_an_extension(name, corpus, tmp_path):
    package = tmp_path / "without" / PACKAGE.name
    shutil.copytree(PACKAGE, package)
    for folder in ("recipes", "model_card"):
        shutil.copytree(PACKAGE.parent / folder, package.parent / folder)
    delete(name, package)
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    commands = NEEDING.get(name, [])
    ended = run_python("-c", TRAIN, str(package.parent), json.dumps(commands), env=environment, cwd=corpus)
    assert ended.returncode == 0, ended.stderr
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(commands)
    assert all(f"needs the extension {name!r}, which this installation lacks." in line for line in errors)
    assert (corpus / "out.b").exists()


def test_doors_of_extensions_lead_to_what_they_name():
    doors = {value for name, value in vars(extensions).items() if name.isupper() and isinstance(value, str)}
    assert {door for row in EXTENSIONS.values() for door in row.doors} == doors and None not in map(find, doors)
    assert find(INITIAL_MODEL).__name__ == "load_converted"
    assert find(STRESS_TABLE).measure_stress
    assert find(DOCUMENTS).parse_document
    assert find("unknown") is None
    with pytest.raises(ValueError, match="^`key` needs the extension 'unknown', which this installation lacks. Leave"):
        require("unknown", "`key`")
