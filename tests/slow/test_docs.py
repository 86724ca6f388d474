"""The command of the docs for several processes runs."""

import json

import pytest

from tests.docs_pages import ROOT, blocks, run_in_shell, write_workspace


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    write_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_docs_multi_gpu_command_runs_with_two_processes(workspace):
    (line,) = [
        line
        for block in blocks(ROOT / "docs" / "scaling.md", "bash")
        for line in block.splitlines()
        if line.startswith("torchrun --standalone --nproc_per_node 2")
    ]
    files = (
        "--train_source train.en --train_target train.de --validation_source valid.en "
        "--validation_target valid.de"
    )
    run_in_shell(f"{line} {files} --test_source test.en --test_target test.de")
    state = json.loads(
        (workspace / "runs/multi30k_en_de/checkpoint-4/training_state.json").read_text()
    )
    assert state["progress"]["num_processes"] == 2
