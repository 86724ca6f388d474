"""Workers of the data loader in whole runs: a killed worker, Ctrl-C to all processes, and an
immediate restart.
"""

import os
import signal

import psutil

from tests.processes import wait_until
from tests.tiny_runs import assert_same_run, flags, no_scores, start, train_tiny, wait_for_metrics
from vanilla_transformer.training.checkpoint import find_latest_checkpoint
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

RUN = {
    "max_steps": 60,
    "save_steps": 2,
    "dropout": 0.3,
    "gradient_accumulation_steps": 2,
    "ema_decay": 0.9,
}
ENDLESS = RUN | {"max_steps": 100_000, "dataloader_num_workers": 2}


def workers_of(process):
    return [
        child
        for child in psutil.Process(process.pid).children()
        if child.name() == "pt_data_worker"
    ]


def wait_for_end(workers):
    _, alive = psutil.wait_procs(workers, timeout=3)
    assert not alive


def test_train_ends_with_one_line_when_a_worker_is_killed(corpus, tmp_path):
    folder = tmp_path / "run"
    process = start(flags(corpus, folder, **ENDLESS))
    wait_for_metrics(folder)
    workers = workers_of(process)
    assert len(workers) == 2
    wait_until(lambda: find_latest_checkpoint(folder) is not None)
    workers[1].kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "Traceback" not in errors
    assert "error: A process that prepares batches ended" in errors.splitlines()[-1]
    assert find_latest_checkpoint(folder) is not None
    wait_for_end(workers)


def test_train_stops_in_order_at_a_signal(corpus, tmp_path):
    """As Ctrl-C in a terminal signals the whole group, and a scheduler the whole job."""
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = tmp_path / str(number)
        process = start(flags(corpus, folder, **ENDLESS))
        wait_for_metrics(folder)
        workers = workers_of(process)
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 75 and "Traceback" not in errors
        assert "The same command resumes from" in errors
        assert not (tmp_path / str(number) / "model.safetensors").exists()
        wait_for_end(workers)


def test_train_resumes_bit_for_bit_with_workers(corpus, tmp_path):
    """The workers of the killed run do not keep the lock of its folder."""
    recipe = RUN | {"max_steps": 150, "save_steps": 10}
    straight = train_tiny(corpus, tmp_path / "straight", **recipe)
    arguments = flags(corpus, tmp_path / "killed", **recipe, dataloader_num_workers=2)
    process = start(arguments)
    wait_for_metrics(tmp_path / "killed")
    workers = workers_of(process)
    process.kill()
    process.communicate(timeout=60)
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    train(parse_recipe(arguments), evaluate=no_scores)
    assert_same_run(straight, tmp_path / "killed")
    wait_for_end(workers)
