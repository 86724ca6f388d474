"""The wheel works in an empty environment, with its requirements and nothing else."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.tiny import TINY_SENTENCES
from tests.tiny_runs import TINY
from tests.wheel import build_wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return the folder of the commands of a new environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", with_pip=True)
    wheel = build_wheel(folder)
    # As in the Makefile: pip knows where torch is from, and uv installs the rest in parallel.
    python, constraints = folder / "venv/bin/python", ["--constraint", ROOT / "constraints.txt"]
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    for command in ([*pip, *constraints, "torch"], [*uv, *constraints, wheel]):
        installed = subprocess.run(command, capture_output=True, text=True)
        assert installed.returncode == 0, installed.stderr
    return folder / "venv/bin"


@pytest.fixture
def run(commands, tmp_path):
    def run_command(program, *arguments):
        command = [commands / program, *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        finished = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run_command


def test_installed_command_runs_as_a_module(run):
    version = run("vanilla-transformer", "--version")
    assert version == run("python", "-m", "vanilla_transformer", "--version")


TRANSLATE = """
import sys
import vanilla_transformer
from transformers import pipeline
for folder in sys.argv[1:]:
    generate = pipeline("text2text-generation", model=folder, device="cpu", max_new_tokens=5)
    print(folder, generate("A man is sleeping."))
"""


def test_installed_package_translates_with_each_family(run):
    files = sorted((ROOT / "tests/golden/removed_tasks").glob("*/config.json"))
    folders = [file.parent for file in files]
    printed = run("python", "-c", TRANSLATE, *folders)
    assert len(folders) == 12 and all(f"{folder} [{{" in printed for folder in folders)


def test_installed_command_trains_translates_and_evaluates(run, tmp_path):
    for end, sentences in (("en", TINY_SENTENCES[:2]), ("de", TINY_SENTENCES[2:])):
        (tmp_path / f"train.{end}").write_text("\n".join(sentences * 10) + "\n")
    options = TINY | {"max_steps": 10}
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    files = [
        "--train_source",
        "train.en",
        "--train_target",
        "train.de",
        "--output_dir",
        "runs/mine",
    ]
    run("vanilla-transformer", "train", "small", *files, *flags)
    run("vanilla-transformer", "translate", "runs/mine", "A man is sleeping.")
    pair = ["--source", "train.en", "--target", "train.de"]
    assert "BLEU" in run("vanilla-transformer", "evaluate", "runs/mine", *pair)


def test_installed_demo_ends_without_matplotlib(run, tmp_path):
    printed = run("vanilla-transformer", "demo", "--output_dir", "demo", "--max_minutes", "0.1")
    assert "undertrained" in printed and not list((tmp_path / "demo").glob("*.png"))
    assert (
        run("python", "-c", "import importlib.util as i; print(i.find_spec('matplotlib'))")
        == "None\n"
    )
