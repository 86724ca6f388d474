"""Real launchers on two CPU processes: `accelerate launch` with files of `accelerate config`, and
`torchrun`.
"""

import json

import pytest

from tests.launchers import find_rank, torchrun, torchrun_on_two_nodes
from tests.processes import wait_until
from tests.tiny import write_tiny_corpus
from tests.tiny_runs import (
    ROOT,
    assert_same_run,
    assert_similar_weights,
    finish,
    flags,
    launch,
    train_tiny,
)
from vanilla_transformer.evaluation.scores import validation_scores

RUN = {"mixed_precision": None, "dropout": 0.2, "gradient_accumulation_steps": None}


def accelerate_launch(config, arguments):
    launcher = ["accelerate.commands.launch", "--config_file", str(config)]
    launcher += ["--num_processes", "2", "--main_process_port", "0"]
    return launch(launcher, arguments)


@pytest.mark.parametrize(("name", "fsdp"), [("ddp", False), ("fsdp2", True)])
def test_accelerate_launch_trains_as_configured(corpus, tmp_path, name, fsdp):
    config = ROOT / "examples" / "accelerate" / f"{name}.yaml"
    finish(accelerate_launch(config, flags(corpus, tmp_path / "run", **RUN)))
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert json.loads((tmp_path / "run" / "machine.json").read_text())["processes"] == 2
    assert recipe["mixed_precision"] == "bf16"
    assert recipe["fsdp"] == (tmp_path / "run" / "checkpoint-6" / "shards").exists() == fsdp


def test_accelerate_launch_refuses_fsdp_version_1(corpus, tmp_path):
    config = tmp_path / "fsdp1.yaml"
    text = (ROOT / "examples" / "accelerate" / "fsdp2.yaml").read_text()
    text = text.replace("fsdp_version: 2", "fsdp_version: 1")
    text = text.replace("forward: true", "forward: FULL_SHARD")
    config.write_text(text)
    process = accelerate_launch(config, flags(corpus, tmp_path / "run", **RUN))
    _, errors = process.communicate(timeout=240)
    assert process.returncode != 0
    assert "fsdp_version=1. Set `fsdp_version: 2`" in errors
    assert not (tmp_path / "run").exists()


def start_two_nodes(arguments, *options):
    agent = torchrun_on_two_nodes(*options)
    return [launch(agent, arguments) for _ in range(2)]


def test_torchrun_on_two_nodes_matches_one_process(corpus, tmp_path):
    """Two agents meet at a c10d rendezvous."""
    options = {"dropout": 0.2, "max_steps": 6}
    for node in start_two_nodes(flags(corpus, tmp_path / "two", **options)):
        finish(node)
    options["gradient_accumulation_steps"] = 2
    # Two processes chose their model by these scores.
    one = train_tiny(corpus, tmp_path / "one", validation_scores, **options)
    assert_similar_weights(one, tmp_path / "two")


LONG = {"dropout": 0.3, "ema_decay": 0.9, "max_steps": 40, "save_steps": 5}


@pytest.fixture(scope="module")
def long_corpus(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def straight(long_corpus):
    """Return the folder of a run that nothing interrupted."""
    finish(launch(torchrun(2), flags(long_corpus, long_corpus / "run", **LONG)))
    return long_corpus / "run"


def kill_rank(launchers, rank, checkpoint):
    """Send SIGKILL to the process of `rank` as soon as there is a checkpoint."""
    wait_until(checkpoint.exists)
    (process,) = filter(None, (find_rank(launcher.pid, rank) for launcher in launchers))
    process.kill()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_restarts_bit_for_bit(long_corpus, straight, tmp_path, rank, nodes):
    """On two nodes only one of the two agents counts the restart."""
    arguments, restarts = flags(long_corpus, tmp_path, **LONG), ("--max_restarts", 2)
    if nodes == 1:
        launchers = [launch(torchrun(2, *restarts), arguments)]
    else:
        launchers = start_two_nodes(arguments, *restarts)
    kill_rank(launchers, rank, tmp_path / "checkpoint-10")
    assert "Resuming from step" in "".join(map(finish, launchers))
    assert_same_run(straight, tmp_path)


def test_train_ends_when_another_process_is_killed(long_corpus, tmp_path):
    endless = flags(long_corpus, tmp_path, **LONG | {"max_steps": 100_000})
    launcher = launch(torchrun(2), endless)
    kill_rank([launcher], 1, tmp_path / "checkpoint-10")
    _, errors = launcher.communicate(timeout=240)
    assert launcher.returncode != 0
    assert "error: Process 0 lost the connection to another process of the run" in errors
    assert 'scripts/train.py", line' not in errors  # no traceback of training


def test_all_processes_end_with_the_refusal_of_the_first_one(long_corpus, tmp_path):
    (tmp_path / "notes.txt").write_text("A file of somebody else.")
    nodes = start_two_nodes(flags(long_corpus, tmp_path, **LONG))
    for node in nodes:
        _, errors = node.communicate(timeout=120)
        assert node.returncode != 0
        assert "notes.txt" in errors and "lost the connection" not in errors
