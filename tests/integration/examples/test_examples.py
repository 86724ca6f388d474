"""The examples run offline on a tiny model and the demo corpus, with the flags of their
docstrings.
"""

import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.recipe import parse_recipe

ROOT = Path(__file__).parents[3]
# They have their own tests.
OTHERS = {ROOT / "examples" / name for name in ("train_on_hf_jobs.py", "ray_serve.py")}
SCRATCH = ROOT / "examples" / "train_from_scratch.py"  # without flags of a trainer
EXAMPLES = sorted({*(ROOT / "examples").glob("*.py")} - OTHERS - {SCRATCH})
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
    """Run an example in this process, which has imported the slow libraries already, and return its
    output.
    """

    def run(script, arguments, **changes):
        main = runpy.run_path(str(ROOT / "examples" / script))["main"]
        main.__globals__.update(changes)
        main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return run


def files(corpus, *splits):
    sides = (("source", "en"), ("target", "de"))
    return [
        part
        for split in splits
        for side, end in sides
        for part in (f"--{split}_{side}", corpus / f"{split}.{end}")
    ]


def translate_with(folder):
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    return model.generate(**tokenizer(["The dog sleeps."], return_tensors="pt"), num_beams=2)


def test_finetune_with_trainer_computes_bleu_and_saves_a_model(run, model, corpus, tmp_path):
    said = run(
        "finetune_with_trainer.py",
        [
            "--model",
            model,
            "--output_dir",
            tmp_path / "out",
            *files(corpus, "train", "validation"),
            *SHORT,
        ]
        + ["--label_smoothing_factor", "0.1", "--gradient_accumulation_steps", "2", "--bf16"],
    )
    assert "'eval_bleu'" in said and "'eval_loss'" in said
    assert translate_with(tmp_path / "out").shape[1] > 1
    before, after = (
        load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out")
    )
    assert before.keys() == after.keys()
    assert not all(torch.equal(before[name], after[name]) for name in before)


def test_lora_saves_adapters_and_a_merged_model(run, model, corpus, tmp_path):
    said = run(
        "lora.py",
        [
            "--model",
            model,
            "--output_dir",
            tmp_path / "out",
            *files(corpus, "train"),
            *SHORT,
            "--rank",
            "2",
        ],
    )
    assert "trainable params: 384" in said
    assert (tmp_path / "out" / "adapter_model.safetensors").exists()
    assert not (tmp_path / "out" / "model.safetensors").exists()
    before, merged = (
        load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out" / "merged")
    )
    changed = {name for name, value in merged.items() if not torch.equal(value, before[name])}
    assert merged.keys() == before.keys()
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj"}
    assert translate_with(tmp_path / "out" / "merged").shape[1] > 1


def test_lora_all_linear_reaches_every_linear_layer_except_the_tied_one(
    run, model, corpus, tmp_path
):
    arguments = [
        "--model",
        model,
        "--output_dir",
        tmp_path / "out",
        *files(corpus, "train"),
        *SHORT,
    ]
    run("lora.py", [*arguments, "--target_modules", "all-linear"])
    before, merged = (
        load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out" / "merged")
    )
    changed = {
        name.split(".")[-2]
        for name, value in merged.items()
        if not torch.equal(value, before[name])
    }
    assert changed == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out" / "merged")
    assert (
        again.lm_head.weight
        is again.model.encoder.embed_tokens.weight
        is again.model.decoder.embed_tokens.weight
    )


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head", "encoder.embed_tokens"])
def test_lora_refuses_tied_weights(run, model, corpus, tmp_path, target):
    arguments = [
        "--model",
        model,
        "--output_dir",
        tmp_path / "out",
        *files(corpus, "train"),
        *SHORT,
    ]
    with pytest.raises(ValueError, match=f"cannot be merged into tied weights, got .*{target}"):
        run("lora.py", [*arguments, "--target_modules", "q_proj", target])
    assert not (tmp_path / "out").exists()


def test_recurrent_model_trains_by_a_recipe(run, corpus, tmp_path):
    names = runpy.run_path(str(ROOT / "examples" / "reproduction" / "recurrent_model.py"))
    shown = re.findall(r"--(\w+) (\S+)", names["__doc__"])
    assert (
        parse_recipe([word for name, value in shown for word in (f"--{name}", value)]).model.d_model
        == 320
    )
    sizes = {
        "vocab_size": 300,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "max_steps": 2,
    }
    words = [word for name, value in sizes.items() for word in (f"--{name}", value)]
    folder = tmp_path / "out"
    said = run(
        "reproduction/recurrent_model.py",
        [*files(corpus, "train", "validation"), *words, "--output_dir", folder],
    )
    assert f"The model is in {folder}." in said and "bleu" in (folder / "metrics.jsonl").read_text()
    assert translate_with(folder).shape[1] > 1


def smaller_config(**sizes):
    sizes |= {
        "d_model": 128,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
    }
    return VanillaTransformerConfig(**sizes)


def test_train_from_scratch_learns_its_sentences(run, corpus, tmp_path):
    pairs = {side: (corpus / f"train.{side}").read_text().splitlines()[:3] for side in ("en", "de")}
    for side, lines in pairs.items():
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
    words = [
        tmp_path / "en",
        tmp_path / "de",
        tmp_path / "out",
        "--steps",
        "120",
        "--vocab_size",
        "300",
    ]
    said = run(SCRATCH.name, words, WARMUP_STEPS=400, VanillaTransformerConfig=smaller_config)
    losses = [
        float(loss)
        for loss in re.findall(r"^step (?:50|100|120): ([\d.]+) nats a token$", said, re.MULTILINE)
    ]
    assert len(losses) == 3 and losses[2] < 0.5 * losses[0]
    answers = [line.partition(" → ") for line in said.splitlines()[-3:]]
    assert [source for source, _, _ in answers] == pairs["en"] and all(
        answer for _, _, answer in answers
    )
    assert len(SCRATCH.read_text().splitlines()) <= 150


def test_train_from_scratch_refuses_files_of_different_lengths(run, tmp_path):
    (tmp_path / "en").write_text("One.\nTwo.\n")
    (tmp_path / "de").write_text("Eins.\n")
    with pytest.raises(ValueError, match="shorter"):
        run(SCRATCH.name, [tmp_path / "en", tmp_path / "de", tmp_path / "out"])
    assert not (tmp_path / "out").exists()


@pytest.mark.sweep
def test_image_classification_learns_directions(run, tmp_path):
    said = run(
        "image_classification.py", ["--output_dir", tmp_path, "--use_cpu", "--disable_tqdm", "true"]
    )
    accuracy = float(re.search(r"Accuracy on 400 new images: ([\d.]+)%", said)[1])
    assert accuracy > 60


@pytest.mark.sweep
def test_time_series_forecasting_beats_repeating_the_last_value(run, tmp_path):
    flags = ["--use_cpu", "--disable_tqdm", "true", "--num_train_epochs", "4"]
    said = run("time_series_forecasting.py", ["--output_dir", tmp_path, *flags])
    forecast, repeated = (
        float(value) for value in re.findall(r"([\d.]+) by (?:the model|repeating)", said)
    )
    assert forecast < 0.75 * repeated


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_docstring_of_an_example_names_existing_flags(path):
    names = runpy.run_path(str(path))
    arguments = ("TokenBudgetTrainingArguments", "Seq2SeqTrainingArguments", "TrainingArguments")
    parts = [next(names[name] for name in arguments if name in names)]
    parts += [names["Arguments"]] if "Arguments" in names else []
    known = {item.name for part in parts for item in fields(part)}
    flags = set(re.findall(r"--(\w+)", names["__doc__"])) - {"nproc_per_node"}
    assert flags and flags <= known
