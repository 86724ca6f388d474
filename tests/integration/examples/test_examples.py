"""The examples run as their docstrings say, offline, on a small model and the embedded corpus."""

import os
import re
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.training.checkpoint import save_model_folder
from vanilla_transformer.training.lr_scheduler import noam_lambda

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHORT = ["--max_steps", "3", "--save_strategy", "no", "--report_to", "none", "--use_cpu", "--logging_steps", "1"]


@pytest.fixture
def model(tiny_model, tiny_tokenizer, tmp_path):
    tiny_model.config.dropout = 0.0
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_demo_corpus(folder, train=40, validation=5, test=5)
    return folder


@pytest.fixture
def run(capsys):
    """Runs an example in this process, which has imported already what takes seconds, and returns what it says."""

    def run(script, arguments):
        runpy.run_path(str(ROOT / "examples" / script))["main"]([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return run


def run_on_two_processes(script, arguments):
    launcher = ("-m", "torch.distributed.run", "--nproc_per_node", "2")
    finished = subprocess.run(
        [sys.executable, *launcher, str(ROOT / "examples" / script), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def files(corpus, *splits):
    sides = (("source", "en"), ("target", "de"))
    return [
        part for split in splits for side, end in sides for part in (f"--{split}_{side}", corpus / f"{split}.{end}")
    ]


def translation_of(folder):
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return model.generate(**tokenizer(["The dog sleeps."], return_tensors="pt"), num_beams=2)


def test_finetuning_with_the_stock_trainer_scores_translations_and_leaves_a_model_folder(run, model, corpus, tmp_path):
    said = run(
        "finetune_with_trainer.py",
        ["--model", model, "--output_dir", tmp_path / "out", *files(corpus, "train", "validation"), *SHORT]
        + ["--label_smoothing_factor", "0.1", "--gradient_accumulation_steps", "2", "--bf16"],
    )
    assert "'eval_bleu'" in said and "'eval_loss'" in said
    assert translation_of(tmp_path / "out").shape[1] > 1
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert not all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_budgets_on_two_processes_take_the_steps_of_one_that_accumulates(run, model, corpus, tmp_path):
    def train(run, output, *flags):
        arguments = ["--model", model, "--output_dir", tmp_path / output, *files(corpus, "train"), *SHORT, *flags]
        arguments += ["--max_tokens", "200", "--warmup_steps", "2", "--optim", "sgd"]
        return run("token_budget_trainer.py", arguments)

    said = train(run, "one", "--gradient_accumulation_steps", "2")
    two = train(run_on_two_processes, "two")
    rates = [float(rate) for rate in re.findall(r"'learning_rate': '?([\d.e-]+)", two)]
    rate = noam_lambda(d_model=16, warmup_steps=2)
    assert rates == pytest.approx([rate(0), rate(1), rate(2)], rel=1e-3)
    loss = re.compile(r"Loss ([\d.]+) after 3 updates")
    assert float(loss.search(two)[1]) == pytest.approx(float(loss.search(said)[1]), rel=1e-3)
    expected = load_file(tmp_path / "one" / "model.safetensors")
    for name, value in load_file(tmp_path / "two" / "model.safetensors").items():
        torch.testing.assert_close(value, expected[name], atol=2e-5, rtol=1e-4, msg=name)


def test_lora_leaves_adapters_and_a_merged_model_that_needs_no_peft(run, model, corpus, tmp_path):
    said = run(
        "lora.py",
        ["--model", model, "--output_dir", tmp_path / "out", *files(corpus, "train"), *SHORT, "--rank", "2"],
    )
    assert "trainable params: 384" in said
    assert (tmp_path / "out" / "adapter_model.safetensors").exists()
    assert not (tmp_path / "out" / "model.safetensors").exists()
    before, merged = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out" / "merged"))
    changed = {name for name, value in merged.items() if not torch.equal(value, before[name])}
    assert merged.keys() == before.keys()
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj"}
    assert translation_of(tmp_path / "out" / "merged").shape[1] > 1


def test_lora_reaches_every_linear_layer_but_that_which_is_tied(run, model, corpus, tmp_path):
    arguments = ["--model", model, "--output_dir", tmp_path / "out", *files(corpus, "train"), *SHORT]
    run("lora.py", [*arguments, "--target_modules", "all-linear"])
    before, merged = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out" / "merged"))
    changed = {name.split(".")[-2] for name, value in merged.items() if not torch.equal(value, before[name])}
    assert changed == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out" / "merged")
    assert again.lm_head.weight is again.model.encoder.embed_tokens.weight is again.model.decoder.embed_tokens.weight


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head", "encoder.embed_tokens"])
def test_lora_on_tied_weights_which_would_not_survive_merging_is_refused(run, model, corpus, tmp_path, target):
    arguments = ["--model", model, "--output_dir", tmp_path / "out", *files(corpus, "train"), *SHORT]
    with pytest.raises(ValueError, match=f"must not be at weights that are tied.*got .*{target}"):
        run("lora.py", [*arguments, "--target_modules", "q_proj", target])
    assert not (tmp_path / "out").exists()


def test_patches_of_images_are_told_apart(run, tmp_path):
    said = run("patches_of_images.py", ["--output_dir", tmp_path, "--use_cpu", "--disable_tqdm", "true"])
    right = float(re.search(r"Of 400 new images ([\d.]+)% are told right", said)[1])
    assert right > 60


def test_the_next_value_of_a_series_is_foretold_from_all_before(run, tmp_path):
    flags = ["--use_cpu", "--disable_tqdm", "true", "--num_train_epochs", "4"]
    said = run("time_series.py", ["--output_dir", tmp_path, *flags])
    foretold, repeated = (float(value) for value in re.findall(r"by ([\d.]+)[, ]", said))
    assert foretold < 0.75 * repeated


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_flags_in_an_examples_docstring_exist(path):
    names = runpy.run_path(str(path))
    arguments = ("TokenBudgetTrainingArguments", "Seq2SeqTrainingArguments", "TrainingArguments")
    parts = [next(names[name] for name in arguments if name in names)]
    parts += [names["Arguments"]] if "Arguments" in names else []
    known = {item.name for part in parts for item in fields(part)}
    flags = set(re.findall(r"--(\w+)", names["__doc__"])) - {"nproc_per_node"}
    assert flags and flags <= known
