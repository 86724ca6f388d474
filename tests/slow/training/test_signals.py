"""A signal to one of two processes stops both after the same step."""

import signal

import psutil

from tests.launchers import torchrun
from tests.tiny_runs import entries, flags, launch, wait_for_metrics
from vanilla_transformer.training.checkpoint import list_checkpoints


def test_stop_signal_to_one_process_stops_both_after_same_step(corpus, tmp_path):
    folder = tmp_path / "out"
    endless = flags(corpus, folder, max_steps=1_000_000, save_steps=1_000_000, eval_steps=1_000_000)
    process = launch(torchrun(2), endless)
    wait_for_metrics(folder)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if any("train.py" in word for word in child.cmdline())
    ]
    workers[-1].send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    (checkpoint,) = list_checkpoints(folder)
    step = int(checkpoint.name.split("-")[1])
    assert (
        errors.count(f"Interrupted after step {step}. The same command resumes")
        == len(workers)
        == 2
    )
    assert step - 2 < entries(folder)[-1]["step"] <= step
