"""examples/token_budget_trainer.py on two processes."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.launchers import torchrun
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.lr_scheduler import noam_lambda

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "token_budget_trainer.py"
SHORT = [
    "--max_steps",
    "3",
    "--save_strategy",
    "no",
    "--report_to",
    "none",
    "--use_cpu",
    "--logging_steps",
    "1",
]


def run_on_two_processes(arguments):
    finished = subprocess.run(
        [sys.executable, "-m", *torchrun(2), str(SCRIPT), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_two_processes_equal_gradient_accumulation(tiny_model, tiny_tokenizer, tmp_path, capsys):
    write_demo_corpus(tmp_path / "corpus", train=40, validation=5, test=5)
    tiny_model.config.dropout = 0.0
    model = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    corpus = tmp_path / "corpus"

    def run_in_this_process(arguments):
        runpy.run_path(str(SCRIPT))["main"](arguments)
        return capsys.readouterr().out

    def train(run, output, *flags):
        arguments = ["--model", model, "--output_dir", tmp_path / output, *SHORT, *flags]
        arguments += ["--train_source", corpus / "train.en", "--train_target", corpus / "train.de"]
        arguments += ["--max_tokens", "200", "--warmup_steps", "2", "--optim", "sgd"]
        return run([str(argument) for argument in arguments])

    one = train(run_in_this_process, "one", "--gradient_accumulation_steps", "2")
    two = train(run_on_two_processes, "two")
    rates = [float(rate) for rate in re.findall(r"'learning_rate': '?([\d.e-]+)", two)]
    rate = noam_lambda(d_model=16, warmup_steps=2)
    assert rates == pytest.approx([rate(0), rate(1), rate(2)], rel=1e-3)
    loss = re.compile(r"Loss ([\d.]+) after 3 steps")
    assert float(loss.search(two)[1]) == pytest.approx(float(loss.search(one)[1]), rel=1e-3)
    expected = load_file(tmp_path / "one" / "model.safetensors")
    for name, value in load_file(tmp_path / "two" / "model.safetensors").items():
        torch.testing.assert_close(value, expected[name], atol=2e-5, rtol=1e-4, msg=name)
