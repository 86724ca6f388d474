"""Worker processes: they translate as one process does, and they end with their parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import active_children

import psutil
import pytest
import torch

from tests.closeness import close_to
from tests.model_variants import calibrated_model
from tests.processes import wait_until
from tests.tiny import tiny_model
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.open_pipeline import open_pipeline
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.machine.cores import usable_cores

TEXTS = ["A man is sleeping.", "", "a b\n\nc. d."]
TEXTS += [f"a {'dog ' * (index % 7)}" for index in range(300)]
WORDS = ["a", "man", "dogs", "run", "green"]
VARIED = []
for start in range(150):
    numbers = range(start, start * 3 % 17 + start)
    VARIED.append(" ".join(WORDS[number % 5] for number in numbers))
pytestmark = pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
SECONDS = 60  # until a test gives up


def test_worker_pipeline_translates_as_one_process_does(folder):
    expected, progress = load_pipeline(folder)(TEXTS, num_beams=2), []

    def report(*call):
        progress.append(call)

    with open_pipeline(folder, 2) as translate:
        assert translate(TEXTS, num_beams=2, progress=report) == expected
        assert progress[-1] == (303, 303)
        assert len(progress) > 1
        assert translate._executor.submit(torch.get_num_threads).result() == 1
        with pytest.raises(ValueError, match="num_return_sequences"):
            translate(TEXTS, num_beams=2, num_return_sequences=3)
        assert translate(TEXTS[:3], num_beams=2) == expected[:3]
        assert len(active_children()) == 2
    assert active_children() == []


def test_worker_pipeline_translates_as_one_process_alone(tiny_tokenizer, tmp_path):
    model = tiny_model(init_std=0.4)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    alone = load_pipeline(folder)
    with open_pipeline(folder, 2) as translate:
        for answer, text in zip(translate(VARIED), VARIED, strict=True):
            assert answer == alone(text)[0]


def test_worker_pipeline_returns_confidence_after_prefixes(tiny_tokenizer, tmp_path):
    folder = save_model_folder(calibrated_model(), tiny_tokenizer, tmp_path / "model")
    prefixes = [f"Das {'Gras ' * (index % 3)}" for index in range(200)]
    options = {"return_confidence": True, "return_warnings": True}
    options |= {"target_prefix": prefixes, "num_beams": 2, "max_new_tokens": 20}
    texts = [f"a {'dog ' * (index % 7)}." for index in range(200)]
    expected = load_pipeline(folder)(texts, **options)
    with open_pipeline(folder, 2) as translate:
        answers = translate(texts, **options)
    confidences = set()
    for answer, other in zip(answers, expected, strict=True):
        assert answer["translation_text"] == other["translation_text"]
        assert answer["translation_text"].startswith("Das")
        assert answer["warnings"] == other["warnings"]
        assert answer["confidence"] == close_to(other["confidence"])
        confidences.add(answer["confidence"])
    assert len(confidences) > 1


def test_worker_pipeline_ends_workers_that_translate(folder):
    with open_pipeline(folder, 2) as translate:
        futures = [translate._executor.submit(time.sleep, 600) for _ in range(4)]
        wait_until(futures[0].running, SECONDS)
        wait_until(lambda: len(active_children()) == 2, SECONDS)
        start = time.monotonic()
    assert time.monotonic() - start < 10
    assert active_children() == []


@pytest.mark.parametrize("busy", [False, True])
def test_worker_pipeline_reports_a_killed_worker(folder, busy):
    long = ["a dog " * 20] * 3000  # more bytes than the pipes between processes hold
    with open_pipeline(folder, 2) as translate:
        translate(TEXTS, num_beams=1)
        workers = active_children()
        assert len(workers) == 2
        threading.Timer(0.5 if busy else 0.0, workers[0].kill).start()
        if not busy:
            wait_until(lambda: not workers[0].is_alive(), SECONDS)
        message = "A worker process was killed. .* use fewer than 2 workers"
        for _ in range(2):
            with pytest.raises(ChildProcessError, match=message):
                translate(long, num_beams=4, max_new_tokens=100)
    assert active_children() == []


@pytest.fixture
def command(folder):
    """Start `translate --workers 2` in its own group with endless text.

    Return it and its two workers.
    """
    command = [sys.executable, "-m", "vanilla_transformer", "translate", str(folder)]
    command += ["--workers", "2", "--num_beams", "1"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, **streams, text=True, start_new_session=True)
    threading.Thread(target=write_forever, args=(process.stdin,), daemon=True).start()
    threading.Thread(target=process.stdout.read, daemon=True).start()
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def write_forever(stream):
    try:
        while True:
            stream.write("a dog is a dog\n" * 100)
    except (BrokenPipeError, ValueError):
        return


def workers_of(process):
    children = psutil.Process(process.pid).children(recursive=True)
    # `as_dict` has no command line of a child that has just ended, where `cmdline` would fail.
    lines = [(child, str(child.as_dict(["cmdline"]))) for child in children]
    return [child for child, line in lines if "spawn_main" in line]


@pytest.mark.parametrize("seconds", [0.0, 8.0])
def test_translate_ends_its_workers_at_ctrl_c(command, seconds):
    wait_until(lambda: len(workers_of(command)) == 2, SECONDS)
    workers = workers_of(command)
    time.sleep(seconds)  # while they start, and while they translate
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does, to all that it runs
    assert command.wait(SECONDS) == 130
    errors = command.stderr.read()
    assert errors.splitlines()[-1] == "Interrupted." and "Traceback" not in errors
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_when_their_parent_dies(command, number):
    wait_until(lambda: len(workers_of(command)) == 2, SECONDS)
    workers = workers_of(command)
    os.kill(command.pid, number)
    command.wait(SECONDS)
    wait_until(lambda: not any(worker.is_running() for worker in workers), SECONDS)
