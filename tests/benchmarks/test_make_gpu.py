"""`make gpu` as a command, on the CPU, in an environment that seems to have only the packages that
it needs.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from benchmarks.harness import ROOT

# Hides packages from every process that has this file on its path.
SITE = """
import importlib.machinery, sys
HIDDEN = {"datasets", "pyarrow", "pandas", "evaluate", "sacrebleu", "sacremoses", "matplotlib", "sentencepiece"}
HIDDEN |= {"peft", "torchao", "ctranslate2", "onnx", "fastapi", "gradio", "psutil", "hypothesis", "sklearn", "scipy"}

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path = [Finder if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""


def make_gpu(folder, *words):
    (folder / "sitecustomize.py").write_text(SITE)
    environment = os.environ | {"PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    command = ["make", "gpu", f"PYTHON={sys.executable}", f"PARTS={' '.join(words)}"]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


def test_the_hidden_packages_cannot_be_imported(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", "import datasets"], env=environment, capture_output=True, text=True
    )
    assert "No module named 'datasets'" in ended.stderr


def test_make_gpu_runs_the_tests_with_few_packages(tmp_path):
    before = sorted((ROOT / "docs").iterdir())
    ended = make_gpu(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"\n\d+ passed, 0 failed, \d+ skipped\.\n", ended.stdout)
    assert sorted((ROOT / "docs").iterdir()) == before


def test_make_gpu_runs_tests_that_compile_last(tmp_path):
    ended = make_gpu(tmp_path, "correctness", "--output_dir", str(tmp_path / "results"))
    assert ended.returncode == 0, ended.stderr
    rows = json.loads((tmp_path / "results" / "gpu.json").read_text())["parts"]["correctness"][
        "rows"
    ]
    compiling = ["inductor" in row["test"] for row in rows]
    assert True in compiling and compiling == sorted(compiling)


@pytest.mark.parametrize("part", ["decoding", "training"])
def test_make_gpu_measures_a_tiny_model_without_a_gpu(part, tmp_path):
    ended = make_gpu(tmp_path, part, "--output_dir", str(tmp_path / "results"))
    assert ended.returncode == 0, ended.stderr
    record = json.loads((tmp_path / "results" / "gpu.json").read_text())["parts"][part]
    assert record["status"] == "finished" and not record["on_gpu"]
    assert all(row["tokens_per_second"] > 0 for row in record["rows"])
    systems = {
        "decoding": ("engine", "generate()", "MarianMTModel"),
        "training": ("train_step", "Seq2SeqTrainer"),
    }
    assert all(f"| {name}" in ended.stdout for name in systems[part])
    page = ended.stdout[ended.stdout.index("# Measure") :]
    assert (tmp_path / "results" / "gpu.md").read_text() + "\n" == page
