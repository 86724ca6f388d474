"""The wheel contains all files that an installed command needs."""

import json
import os
import zipfile
from pathlib import Path

import pytest
import yaml

import vanilla_transformer
from tests.processes import run_python
from tests.wheel import build_wheel
from vanilla_transformer.evaluation.scores import score, score_paper_bleu

ROOT = Path(__file__).parents[2]
_PACKAGED = ("*.py", "*.tsv.gz", "*.html", "*.css", "*.js")
METRIC = """
import json, sys
import evaluate
from vanilla_transformer.evaluation import metric_path

print(metric_path())
hypotheses, references = json.load(sys.stdin)
metric = evaluate.load(metric_path())
print(json.dumps(metric.compute(predictions=hypotheses, references=references, paper_bleu="de")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture
def run(wheel, tmp_path):
    """Return a function that runs Python with the unpacked wheel, away from the checkout."""
    wheel.extractall(tmp_path / "installed")
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    environment = (
        os.environ | offline | {"PYTHONPATH": str(tmp_path / "installed"), "OMP_NUM_THREADS": "1"}
    )

    def call(*arguments, **options):
        finished = run_python(*arguments, env=environment, cwd=tmp_path, **options)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return call


def test_wheel_contains_every_module_and_resource(wheel):
    names = set(wheel.namelist())
    files = {path for ending in _PACKAGED for path in (ROOT / "vanilla_transformer").rglob(ending)}
    expected = {path.relative_to(ROOT).as_posix() for path in files}
    expected |= {
        f"vanilla_transformer/{path.relative_to(ROOT)}"
        for path in (ROOT / "recipes").glob("*.yaml")
    }
    expected |= {
        f"vanilla_transformer/{path.relative_to(ROOT)}" for path in (ROOT / "model_card").glob("*")
    }
    assert expected | {"vanilla_transformer/py.typed"} <= names
    assert not [
        name for name in names if name.startswith(("tests", "scripts", "tools", "benchmarks"))
    ]


def test_wheel_runs_as_a_module(run):
    assert (
        run("-m", "vanilla_transformer", "--version")
        == f"vanilla-transformer {vanilla_transformer.__version__}\n"
    )


def test_wheel_loads_the_metric_by_its_path_without_a_network(run, tmp_path):
    hypotheses, references = (
        ["Ein Mann schläft.", "Zwei E-Mail-Hunde laufen."],
        ["Ein Mann schlief.", "Zwei Hunde."],
    )
    path, scores = run("-c", METRIC, input=json.dumps([hypotheses, references])).splitlines()
    assert path.startswith(str(tmp_path))
    expected = (
        score(hypotheses, references)._asdict() | score_paper_bleu(hypotheses, references)._asdict()
    )
    assert json.loads(scores) == expected


def test_wheel_metadata_names_the_command_the_license_and_the_requirements(wheel):
    def read(ending):
        return wheel.read(next(name for name in wheel.namelist() if name.endswith(ending))).decode()

    assert "vanilla-transformer = vanilla_transformer.cli:main" in read("entry_points.txt")
    metadata = read("METADATA")
    assert "License: Apache-2.0" in metadata and "License-File: LICENSE" in metadata
    assert (
        "Requires-Dist: torch>=" in metadata and "Requires-Dist: transformers<6,>=5.12" in metadata
    )


def test_constraints_pin_every_direct_requirement():
    pinned = {
        line.split("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    required = {
        "torch",
        "transformers",
        "accelerate",
        "tokenizers",
        "datasets",
        "evaluate",
        "safetensors",
    }
    required |= {"sacrebleu", "sacremoses", "peft", "tensorboard", "sentencepiece", "protobuf"}
    assert (
        required | {"pytest", "pytest-xdist", "hypothesis", "ruff", "mypy", "matplotlib"} <= pinned
    )


def test_recipes_name_no_path_outside_the_repository():
    for path in (ROOT / "recipes").glob("*.yaml"):
        values = [
            value for value in yaml.safe_load(path.read_text()).values() if isinstance(value, str)
        ]
        assert not [value for value in values if value.startswith(("/", "~", ".."))], path.name
