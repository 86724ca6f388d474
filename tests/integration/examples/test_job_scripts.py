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

import jsonschema
import pytest
import yaml
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
BEGINNING = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s"
METADATA = re.compile(BEGINNING + r"(?P<content>(^#(| .*)$\s)+)^# ///$")
FACTS = ["--facts", "demo"]


def test_hf_jobs_script_has_metadata_of_pep_723():
    (match,) = METADATA.finditer(JOB.read_text())
    lines = match["content"].splitlines(keepends=True)
    metadata = tomllib.loads("".join(line[2:] for line in lines))
    assert match["type"] == "script"
    assert metadata.keys() == {"requires-python", "dependencies"}
    assert "3.11" in SpecifierSet(metadata["requires-python"])
    torch, package = map(Requirement, sorted(metadata["dependencies"]))
    assert (torch.name, package.name) == ("torch", "vanilla-transformer")
    extras = distribution("vanilla-transformer").metadata.get_all("Provides-Extra")
    assert package.extras <= {*extras}


def test_hf_jobs_script_runs_valid_commands():
    script = runpy.run_path(str(JOB))
    command = script["training_command"]("wmt14_en_de_base", ["--max_steps", "3"])
    recipe, *flags = command[command.index("train") + 1 :]
    assert parse_recipe([str(find_recipe(recipe)), *flags]).optimization.max_steps == 3
    push = script["push_command"]("user/name", "wmt14_en_de")
    options = parse(PushToHubArguments, push[push.index("push-to-hub") + 1 :])
    assert [options.model, options.repo_id] == [script["OUTPUT"], "user/name"]
    assert options.private


NO_FACTS = "There is no file of facts 'wmt14_de'. Name a YAML file"
WRONG = {
    "facts": (["small", "user/name", "--facts", "wmt14_de"], NO_FACTS),
    "file": (
        ["small", "user/name", "--facts", "missing.yaml"],
        "missing.yaml: No such file",
    ),
    "recipe": (["smal", "user/name", *FACTS], "There is no recipe 'smal'."),
    "usage": (["small", "user/name", "demo"], "Usage: train_on_hf_jobs.py RECIPE"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG.keys())
def test_hf_jobs_script_refuses_wrong_names_in_one_line(capsys, words, message):
    assert run(runpy.run_path(str(JOB))["main"], words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_hf_jobs_script_refuses_a_repository_of_others(hub, tmp_path, monkeypatch):
    """Refuse it in one line, since the token may not write there."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = [JOB, "small", "other/name", *FACTS]
    ended = run_with_hub(hub, tmp_path, *words, timeout=100)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and "403" in ended.stderr
    assert ended.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()


def exit_with(status):
    """Return a function that returns a command with an exit status."""
    return lambda *_: [sys.executable, "-c", f"raise SystemExit({status})"]


def test_hf_jobs_script_publishes_nothing_after_a_failure(monkeypatch):
    """End the training with a failure."""
    main = runpy.run_path(str(JOB))["main"]
    names = {"create_repo": lambda *_, **__: None}
    names |= {"training_command": exit_with(3), "push_command": exit_with(4)}
    for name, function in names.items():
        monkeypatch.setitem(main.__globals__, name, function)
    with pytest.raises(SystemExit, match="3"):
        main(["small", "user/name", *FACTS])


def fields(**properties):
    return {"type": "object", "additionalProperties": False, "properties": properties}


def listed(items):
    return {"type": "array", "items": items}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
CONTAINER = fields(
    name=TEXT,
    image=TEXT,
    command=listed(TEXT),
    args=listed(TEXT),
    env=listed(fields(name=TEXT, value=TEXT)),
    resources=fields(requests=TEXTS, limits=TEXTS),
    volumeMounts=listed(fields(name=TEXT, mountPath=TEXT)),
)
POD = fields(
    restartPolicy={"enum": ["Never", "OnFailure"]},
    terminationGracePeriodSeconds=NUMBER,
    containers=listed(CONTAINER),
    volumes=listed(fields(name=TEXT, persistentVolumeClaim=fields(claimName=TEXT), emptyDir=TEXTS)),
)
POD_TEMPLATE = fields(spec=POD)
INDEXED_JOB = fields(
    parallelism=NUMBER,
    completions=NUMBER,
    completionMode={"const": "Indexed"},
    backoffLimit=NUMBER,
    template=POD_TEMPLATE,
)
REPLICATED = fields(name=TEXT, replicas=NUMBER, template=fields(spec=INDEXED_JOB))
# The fields that the examples use, as config/components/crd of kubernetes-sigs/jobset (v1alpha2)
# and sky/utils/schemas.py of skypilot-org/skypilot declare them.
SCHEMAS = {
    "kubernetes": fields(
        apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
        kind={"const": "JobSet"},
        metadata=fields(name=TEXT),
        spec=fields(failurePolicy=fields(maxRestarts=NUMBER), replicatedJobs=listed(REPLICATED)),
    ),
    "skypilot": fields(
        name=TEXT,
        num_nodes=NUMBER,
        resources=fields(accelerators=TEXT, job_recovery=fields(max_restarts_on_errors=NUMBER)),
        volumes=TEXTS,
        envs=TEXTS,
        setup=TEXT,
        run=TEXT,
    ),
}


def read_job(name):
    return yaml.safe_load((ROOT / "examples" / name / "train.yaml").read_text())


@pytest.mark.parametrize("name", SCHEMAS)
def test_cluster_jobs_fit_their_schemas(name):
    jsonschema.validate(read_job(name), SCHEMAS[name])


def test_kubernetes_job_names_its_nodes_and_volumes_alike():
    job_set = read_job("kubernetes")
    (job,) = job_set["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert spec["parallelism"] == spec["completions"] == int(variables["NODES"])
    name = job_set["metadata"]["name"]
    assert variables["HEAD"] == f"{name}-{job['name']}-0-0.{name}"
    mounted = [mount["name"] for mount in container["volumeMounts"]]
    assert mounted == [volume["name"] for volume in pod["volumes"]]


def kubernetes_command():
    (job,) = read_job("kubernetes")["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    return [*container["command"], *container["args"]], variables


def skypilot_command():
    task = read_job("skypilot")
    return ["bash", "-euc", f"{task['setup']}\n{task['run']}"], task["envs"]


TRAIN = "--module vanilla_transformer train wmt14_en_de_base --output_dir /runs/wmt14_en_de_base"
TORCHRUN = (
    "torchrun --nnodes 2 --nproc_per_node {} --max_restarts 2 --rdzv_backend c10d --rdzv_id {} "
    "--rdzv_endpoint {}:29500 --rdzv_conf is_host={} " + TRAIN + " --seed 1 --max_steps 3"
)
SKYPILOT = {
    "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    "SKYPILOT_TASK_ID": "sky-1",
}
HEAD = "train-nodes-0-0.train"
RENDERED = {
    ("kubernetes", 0): ({"JOB_COMPLETION_INDEX": "0"}, ("gpu", "train", HEAD, 1)),
    ("kubernetes", 1): ({"JOB_COMPLETION_INDEX": "1"}, ("gpu", "train", HEAD, 0)),
    ("skypilot", 0): (SKYPILOT | {"SKYPILOT_NODE_RANK": "0"}, ("8", "sky-1", "10.0.0.7", 1)),
    ("skypilot", 1): (SKYPILOT | {"SKYPILOT_NODE_RANK": "1"}, ("8", "sky-1", "10.0.0.7", 0)),
}


@pytest.mark.parametrize(("name", "node"), RENDERED)
def test_cluster_jobs_start_torchrun_on_each_node(tmp_path, name, node):
    node_variables, values = RENDERED[name, node]
    command, variables = {"kubernetes": kubernetes_command, "skypilot": skypilot_command}[name]()
    for program in ("pip", "torchrun"):
        path = tmp_path / program
        path.write_text(f'#!/bin/bash\necho {program} "$@"\n')
        path.chmod(0o755)
    variables |= {"FLAGS": "--seed 1 --max_steps 3", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(command, env=variables | node_variables, text=True, capture_output=True)
    assert result.returncode == 0, result.stderr
    installed, started = result.stdout.splitlines()
    assert installed == "pip install --quiet vanilla-transformer[evaluation,tracking]"
    assert started == TORCHRUN.format(*values)
    assert parse_recipe([str(find_recipe("wmt14_en_de_base")), *started.split()[-6:]])


def run_slurm_script(tmp_path, srun, *arguments):
    """Run the script with commands of Slurm that write down how they were called."""
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    commands = {"scontrol": '[ "$1" = show ] && echo node-1 && echo node-2'}
    commands |= {"srun": srun, "scancel": "touch $STOPPED"}
    for name, body in commands.items():
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/bash\necho {name} "$@" >> {log}\n{body}\nexit 0\n')
        path.chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[1-2]"}
    job |= {"SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "32"}
    job |= {"SLURM_GPUS_ON_NODE": "8", "STOPPED": str(tmp_path / "stopped")}
    job["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    options = {"text": True, "capture_output": True, "timeout": 60}
    command = ["bash", SLURM, *arguments]
    result = subprocess.run(command, env=os.environ | job, **options)
    return result, log.read_text() if log.exists() else ""


def test_slurm_script_starts_torchrun_on_each_node(tmp_path):
    words = ["recipes/small.yaml", "--max_steps", "3"]
    result, log = run_slurm_script(tmp_path, "true", *words)
    assert result.returncode == 0, result.stderr
    assert "--nnodes 2 --nproc_per_node 8 --max_restarts 2" in log
    assert "--max_restarts 2 --rdzv_backend c10d --rdzv_id 7-0" in log
    script = f"scripts/train.py {' '.join(words)}"
    assert f"--rdzv_endpoint node-1:29500 {script}" in log
    assert "requeue" not in log


def test_slurm_script_queues_job_again_after_preemption(tmp_path):
    preempted = "kill -USR1 $PPID; until [ -e $STOPPED ]; do sleep 0.01; done"
    result, log = run_slurm_script(tmp_path, preempted, "recipes/small.yaml")
    assert result.returncode == 0, result.stderr
    assert log.splitlines()[-2:] == ["scancel --signal=TERM 7.0", "scontrol requeue 7"]


def test_slurm_script_needs_a_recipe(tmp_path):
    result, log = run_slurm_script(tmp_path, "true")
    assert result.returncode == 2 and "Usage: sbatch" in result.stderr and not log
