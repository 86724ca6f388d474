"""Scripts for clusters: their metadata and commands are valid, and preemption queues the job
again.
"""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.local_hub import run_with_hub
from vanilla_transformer.cli import run
from vanilla_transformer.cli.publish import PushToHubArguments, parse
from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.training.recipe import parse_recipe

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "train_on_hf_jobs.py"
SLURM = ROOT / "examples" / "slurm" / "train.sbatch"
# The regular expression of PEP 723.
METADATA = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def test_hf_jobs_script_has_metadata_of_pep_723():
    (found,) = METADATA.finditer(JOB.read_text())
    metadata = tomllib.loads(
        "".join(line[2:] for line in found["content"].splitlines(keepends=True))
    )
    assert found["type"] == "script" and metadata.keys() == {"requires-python", "dependencies"}
    assert "3.11" in SpecifierSet(metadata["requires-python"])
    requirements = {each.name: each for each in map(Requirement, metadata["dependencies"])}
    assert requirements.keys() == {"torch", "vanilla-transformer"}
    assert requirements["vanilla-transformer"].extras <= set(
        distribution("vanilla-transformer").metadata.get_all("Provides-Extra")
    )


def test_hf_jobs_script_runs_valid_commands():
    script = runpy.run_path(str(JOB))
    command = script["training_command"]("wmt14_en_de_base", ["--max_steps", "3"])
    recipe, *flags = command[command.index("train") + 1 :]
    assert parse_recipe([str(find_recipe(recipe)), *flags]).optimization.max_steps == 3
    push = script["push_command"]("user/name", "wmt14_en_de")
    options = parse(PushToHubArguments, push[push.index("push-to-hub") + 1 :])
    assert [options.folder, options.repo_id] == [script["OUTPUT"], "user/name"] and options.private


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["small", "user/name", "--facts", "wmt14_de"],
            "There is no file of facts 'wmt14_de'. Name a YAML file",
        ),
        (["small", "user/name", "--facts", "missing.yaml"], "missing.yaml: No such file"),
        (["smal", "user/name", "--facts", "demo"], "There is no recipe 'smal'."),
        (["small", "user/name", "demo"], "Usage: train_on_hf_jobs.py RECIPE"),
    ],
    ids=["facts", "file", "recipe", "usage"],
)
def test_hf_jobs_script_refuses_wrong_names_in_one_line(capsys, words, message):
    assert run(runpy.run_path(str(JOB))["main"], words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_hf_jobs_script_refuses_in_one_line_a_repository_that_it_may_not_write(
    hub, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ended = run_with_hub(hub, tmp_path, JOB, "small", "other/name", "--facts", "demo", timeout=100)
    assert ended.returncode == 2 and ended.stderr.startswith("error: ") and "403" in ended.stderr
    assert ended.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_hf_jobs_script_publishes_nothing_after_training_has_failed(monkeypatch):
    main = runpy.run_path(str(JOB))["main"]
    names = {"create_repo": lambda *_, **__: None}
    names |= {
        name: lambda *_, status=status: [sys.executable, "-c", f"raise SystemExit({status})"]
        for name, status in (("training_command", 3), ("push_command", 4))
    }
    for name, function in names.items():
        monkeypatch.setitem(main.__globals__, name, function)
    with pytest.raises(SystemExit, match="3"):
        main(["small", "user/name", "--facts", "demo"])


def run_slurm_script(tmp_path, srun, *arguments):
    """Run the script with commands of Slurm that write down how they were called."""
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    commands = {
        "scontrol": '[ "$1" = show ] && echo node-1 && echo node-2',
        "srun": srun,
        "scancel": "touch $STOPPED",
    }
    for name, body in commands.items():
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/bash\necho {name} "$@" >> {log}\n{body}\nexit 0\n')
        path.chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    job |= {
        "SLURM_CPUS_PER_TASK": "32",
        "SLURM_GPUS_ON_NODE": "8",
        "STOPPED": str(tmp_path / "stopped"),
    }
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", SLURM, *arguments],
        env=os.environ | job | {"PATH": path},
        text=True,
        capture_output=True,
        timeout=60,
    )
    return result, log.read_text() if log.exists() else ""


def test_slurm_script_starts_torchrun_on_each_node(tmp_path):
    result, log = run_slurm_script(tmp_path, "true", "recipes/small.yaml", "--max_steps", "3")
    assert result.returncode == 0, result.stderr
    assert "--nnodes 2 --nproc_per_node 8 --max_restarts 2 --rdzv_backend c10d --rdzv_id 7-0" in log
    assert "--rdzv_endpoint node-1:29500 scripts/train.py recipes/small.yaml --max_steps 3" in log
    assert "requeue" not in log


def test_slurm_script_queues_job_again_after_preemption(tmp_path):
    preempted = "kill -USR1 $PPID; until [ -e $STOPPED ]; do sleep 0.01; done"
    result, log = run_slurm_script(tmp_path, preempted, "recipes/small.yaml")
    assert result.returncode == 0, result.stderr
    assert log.splitlines()[-2:] == ["scancel --signal=TERM 7.0", "scontrol requeue 7"]


def test_slurm_script_needs_a_recipe(tmp_path):
    result, log = run_slurm_script(tmp_path, "true")
    assert result.returncode == 2 and "Usage: sbatch" in result.stderr and not log
