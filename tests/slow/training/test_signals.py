"""A signal to one of two processes stops both after the same step."""

import signal

import psutil

from tests.launchers import torchrun
from tests.tiny_runs import entries, flags, launch, wait_for_metrics
from vanilla_transformer.training.checkpoint import list_checkpoints


def test_stop_signal_stops_both_after_same_step(corpus, tmp_path):
    folder = tmp_path / "out"
    endless = dict.fromkeys(("max_steps", "save_steps", "eval_steps"), 1_000_000)
    process = launch(torchrun(2), flags(corpus, folder, **endless))
    wait_for_metrics(folder)
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child for child in children if "train.py" in " ".join(child.cmdline())]
    workers[-1].send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    (checkpoint,) = list_checkpoints(folder)
    step = int(checkpoint.name.split("-")[1])
    messages = errors.count(f"Interrupted after step {step}. The same command resumes")
    assert messages == len(workers) == 2
    assert step - 2 < entries(folder)[-1]["step"] <= step
