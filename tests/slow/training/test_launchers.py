"""Real launchers on two CPU processes: `accelerate launch` with files of `accelerate config`, and `torchrun`."""

import json
import socket
import time
from importlib.util import find_spec

import psutil
import pytest

from tests.tiny_runs import ROOT, assert_same_run, assert_similar_weights, flags, launch, no_scores
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train

RUN = {"mixed_precision": None, "dropout": 0.2, "gradient_accumulation_steps": None}


def finish(process, timeout=240):
    _, errors = process.communicate(timeout=timeout)
    return process.returncode, errors


def accelerate_launch(config, arguments):
    launcher = ["accelerate.commands.launch", "--config_file", str(config), "--num_processes", "2"]
    return finish(launch([*launcher, "--main_process_port", "0"], arguments))


@pytest.mark.parametrize(
    ("name", "fsdp", "reshard", "sharded"),
    [
        ("ddp", False, True, False),
        ("fsdp2", True, True, True),
        pytest.param(
            *("deepspeed_zero2", True, False, False),
            marks=pytest.mark.skipif(find_spec("deepspeed") is None, reason="its launcher needs deepspeed"),
        ),
    ],
)
def test_accelerate_launch_trains_as_configured(corpus, tmp_path, name, fsdp, reshard, sharded):
    status, errors = accelerate_launch(
        ROOT / "examples" / "accelerate" / f"{name}.yaml", flags(corpus, tmp_path / "run", **RUN)
    )
    assert status == 0, errors
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert json.loads((tmp_path / "run" / "machine.json").read_text())["processes"] == 2
    assert recipe["mixed_precision"] == "bf16"
    assert (recipe["fsdp"], recipe["fsdp_reshard_after_forward"]) == (fsdp, reshard)
    assert (tmp_path / "run" / "checkpoint-6" / "shards").exists() == sharded


def test_accelerate_launch_refuses_fsdp_version_1(corpus, tmp_path):
    config = tmp_path / "fsdp1.yaml"
    text = (ROOT / "examples" / "accelerate" / "fsdp2.yaml").read_text()
    text = text.replace("fsdp_version: 2", "fsdp_version: 1").replace("forward: true", "forward: FULL_SHARD")
    config.write_text(text)
    status, errors = accelerate_launch(config, flags(corpus, tmp_path / "run", **RUN))
    assert status != 0
    assert "fsdp_version=1. Set `fsdp_version: 2`" in errors
    assert not (tmp_path / "run").exists()


def torchrun(*options):
    return ["torch.distributed.run", *map(str, options)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def test_torchrun_on_two_nodes_matches_one_process(corpus, tmp_path):
    """Two agents meet at a c10d rendezvous, as on two machines with a shared disk."""
    endpoint = f"localhost:{free_port()}"
    two_nodes = torchrun("--nnodes", 2, "--nproc_per_node", 1, "--rdzv_backend", "c10d", "--rdzv_id", "run")
    options = {"dropout": 0.2, "max_steps": 6}
    agents = [
        launch([*two_nodes, "--rdzv_endpoint", endpoint], flags(corpus, tmp_path / "two", **options)) for _ in range(2)
    ]
    for status, errors in map(finish, agents):
        assert status == 0, errors
    one = parse_recipe(flags(corpus, tmp_path / "one", gradient_accumulation_steps=2, **options))
    assert_similar_weights(train(one, evaluate=no_scores), tmp_path / "two")


@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_restarts_after_killed_worker_bit_for_bit(corpus, tmp_path, rank):
    options = {"dropout": 0.3, "ema_decay": 0.9, "max_steps": 40, "save_steps": 5}
    launcher = torchrun("--nproc_per_node", 2, "--max_restarts", 2)
    status, errors = finish(launch(launcher, flags(corpus, tmp_path / "straight", **options)))
    assert status == 0, errors
    process = launch(launcher, flags(corpus, tmp_path / "killed", **options))
    kill_worker(process, rank, tmp_path / "killed" / "checkpoint-10")
    status, errors = finish(process)
    assert status == 0, errors
    assert "Resuming from step" in errors
    assert_same_run(tmp_path / "straight", tmp_path / "killed")


def kill_worker(process, rank, checkpoint):
    """Send SIGKILL to the worker of `rank` as soon as there is a checkpoint."""
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    for worker in psutil.Process(process.pid).children(recursive=True):
        if worker.environ().get("RANK") == str(rank):
            worker.kill()
