"""The wheel carries all that an installed command needs."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("vanilla_transformer", "recipes", "model_card", "setup.py", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that the working tree stays as it was."""
    source = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        target,
        source,
    ]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_module_and_resource(wheel):
    names = set(wheel.namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "vanilla_transformer").rglob("*.py")}
    resources = {f"vanilla_transformer/{path.relative_to(ROOT)}" for path in (ROOT / "recipes").glob("*.yaml")}
    resources |= {f"vanilla_transformer/{path.relative_to(ROOT)}" for path in (ROOT / "model_card").glob("*")}
    assert modules | resources | {"vanilla_transformer/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "scripts"))]


def test_the_metric_loads_by_its_path_from_the_wheel_without_a_network(wheel, tmp_path):
    wheel.extractall(tmp_path)
    program = "import evaluate; from vanilla_transformer.evaluation import metric_path as path\n"
    program += "print(path()); print(evaluate.load(path()).compute(predictions=['a'], references=['a'])['chrf'])"
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | offline | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    path, chrf = finished.stdout.splitlines()
    assert path.startswith(str(tmp_path)) and float(chrf) == 100.0


def test_the_metadata_names_the_command_the_licence_and_the_requirements(wheel):
    def read(ending):
        return wheel.read(next(name for name in wheel.namelist() if name.endswith(ending))).decode()

    assert "vanilla-transformer = vanilla_transformer.cli:main" in read("entry_points.txt")
    metadata = read("METADATA")
    assert "License: Apache-2.0" in metadata and "License-File: LICENSE" in metadata
    assert "Requires-Dist: torch>=2.6" in metadata and "Requires-Dist: transformers<6,>=5.17" in metadata


def test_every_requirement_is_pinned_for_development():
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    required = {"torch", "transformers", "accelerate", "tokenizers", "datasets", "evaluate", "safetensors"}
    required |= {"sacrebleu", "sacremoses", "peft", "tensorboard"}
    assert required | {"pytest", "hypothesis", "ruff", "mypy", "matplotlib"} <= pinned


def test_recipes_name_no_path_of_one_machine():
    for path in (ROOT / "recipes").glob("*.yaml"):
        values = [value for value in yaml.safe_load(path.read_text()).values() if isinstance(value, str)]
        assert not [value for value in values if value.startswith(("/", "~"))]
