"""`vanilla-transformer compile --workers auto` measures numbers of workers with a C++ compiler."""

import re

import pytest
import torch
from transformers.utils import logging

from tests.tiny_engines import have_compiled_steps
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.loading import load_pipeline, open_pipeline
from vanilla_transformer.extensions.scale_out import engine_workers, worker_choice
from vanilla_transformer.utils import device_utils
from vanilla_transformer.utils.device_utils import find_compiler, usable_cores

TEXTS = ["a b c", "b c d e", "c d"]
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


@pytest.fixture
def two_threads(monkeypatch):
    """Let this process have two threads, on a machine with two cores."""
    if usable_cores() < 2:
        pytest.skip("needs two cores")
    for module in (device_utils, engine_workers, worker_choice):
        monkeypatch.setattr(module, "usable_cores", lambda: 2)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("faster", [1, 2])
def test_compile_chooses_the_workers_that_auto_means(folder, tmp_path, monkeypatch, capsys, two_threads, faster):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_text("\n".join(TEXTS) + "\n")
    before = load_pipeline(folder)(TEXTS, num_beams=1)
    measured = {number: 200.0 if number == faster else 100.0 for number in (1, 2)}
    monkeypatch.setattr(worker_choice, "compare_workers", lambda *_, **__: measured)
    command = ["compile", str(folder), "--num_beams", "1", "--workers", "auto"]
    assert main([*command, "--source", str(tmp_path / "source")]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"(\d) threads: ready", printed) == ["2", "1"]
    rows = [line.replace(" ", "") for line in printed.splitlines() if line.startswith("|")]
    speeds = ["200.0" if faster == number else "100.0" for number in (1, 2)]
    assert rows[2:] == [f"|1|2|{speeds[0]}|", f"|2|1|{speeds[1]}|"]
    assert f"`--workers auto` is {faster}: {float(faster):.2f} times the speed of one." in printed
    with open_pipeline(folder, "auto", num_beams=1) as translate:
        assert translate(TEXTS, num_beams=1) == before
        if faster == 2:
            assert translate.workers == 2 and translate.threads == 1
            # Each of two jobs at a time goes to a worker, and one worker may have translated all texts.
            jobs = [translate._executor.submit(have_compiled_steps, str(folder)) for _ in range(8)]
            assert any(job.result() for job in jobs)


def test_compile_measures_numbers_of_workers(folder, tmp_path, monkeypatch, capsys, caplog, two_threads):
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_text("\n".join(TEXTS) + "\n")
    command = ["compile", str(folder), "--num_beams", "1", "--workers", "auto"]
    assert main([*command, "--source", str(tmp_path / "source")]) == 0
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\| [12] \| [12] \| [\d.]+ \|$", printed, re.MULTILINE)) == 2
    (chosen,) = re.findall(r"^`--workers auto` is (\d)", printed, re.MULTILINE)
    assert main(["translate", str(folder), "a b c", "--num_beams", "1", "--workers", "auto"]) == 0
    assert f'`workers="auto"` is {chosen}: ' in caplog.text
