"""Distributed scoring: the same scores, in the same order, as on one process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.translation import SENTENCES
from vanilla_transformer.cli import main
from vanilla_transformer.file_utils import save_model_folder

ROOT = Path(__file__).parents[3]


def test_score_of_two_processes_equals_one_process(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("\n".join(SENTENCES) + "\n")
    words = [str(folder), "--source", f"{tmp_path}/a.en", "--target", f"{tmp_path}/a.de"]
    assert main(["score", *words]) == 0
    alone = capsys.readouterr().out
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "-m",
        "vanilla_transformer",
        "score",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT)}
    finished = subprocess.run([*launch, *words], env=environment, capture_output=True, text=True, timeout=180)
    assert finished.returncode == 0, finished.stderr
    found = [float(line) for line in finished.stdout.splitlines()]
    assert len(found) == 5
    assert all(abs(one - other) < 1e-4 for one, other in zip(found, map(float, alone.split()), strict=True))
