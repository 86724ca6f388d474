"""The examples run offline on a tiny model and the demo corpus, with the flags of their
docstrings.
"""

import re
import runpy
from collections import Counter
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
OTHERS = {
    ROOT / "examples" / name
    for name in (
        "train_on_hf_jobs.py",
        "ray_serve.py",
        "live_captions.py",
        "letters_to_phonemes.py",
    )
}
SCRATCH = ROOT / "examples" / "train_from_scratch.py"  # without flags of a trainer
EXAMPLES = sorted({*(ROOT / "examples").glob("*.py")} - OTHERS - {SCRATCH})
SHORT = ["--max_steps", "3", "--save_strategy", "no", "--report_to", "none"]
SHORT += ["--use_cpu", "--logging_steps", "1"]
TIED = ["embed_tokens", "lm_head", "encoder.embed_tokens"]


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
    flags = []
    for split in splits:
        flags += [f"--{split}_source", corpus / f"{split}.en"]
        flags += [f"--{split}_target", corpus / f"{split}.de"]
    return flags


def translate_with(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["The dog sleeps."], return_tensors="pt")
    return model.generate(**inputs, num_beams=2)


def changed_weights(before, after):
    """Return the names of weights that differ between two folders."""
    before = load_file(before / "model.safetensors")
    after = load_file(after / "model.safetensors")
    assert before.keys() == after.keys()
    return {name for name in after if not torch.equal(after[name], before[name])}


def test_finetune_with_trainer_saves_a_model(run, model, corpus, tmp_path):
    """Compute BLEU as well."""
    out = tmp_path / "out"
    arguments = ["--model", model, "--output_dir", out, "--bf16", *SHORT]
    arguments += [*files(corpus, "train", "validation"), "--label_smoothing_factor", "0.1"]
    arguments += ["--gradient_accumulation_steps", "2"]
    printed = run("finetune_with_trainer.py", arguments)
    assert "'eval_bleu'" in printed and "'eval_loss'" in printed
    assert translate_with(out).shape[1] > 1
    assert changed_weights(model, out)


@pytest.fixture
def lora_flags(model, corpus, tmp_path):
    flags = ["--model", model, "--output_dir", tmp_path / "out"]
    return [*flags, *files(corpus, "train"), *SHORT]


def test_lora_saves_adapters_and_a_merged_model(run, model, lora_flags, tmp_path):
    out = tmp_path / "out"
    printed = run("lora.py", [*lora_flags, "--rank", "2"])
    assert "trainable params: 384" in printed
    assert (out / "adapter_model.safetensors").exists()
    assert not (out / "model.safetensors").exists()
    changed = changed_weights(model, out / "merged")
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj"}
    assert translate_with(out / "merged").shape[1] > 1


def test_lora_all_linear_reaches_all_but_the_tied_layer(run, model, lora_flags, tmp_path):
    merged = tmp_path / "out" / "merged"
    run("lora.py", [*lora_flags, "--target_modules", "all-linear"])
    changed = {name.split(".")[-2] for name in changed_weights(model, merged)}
    assert changed == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    again = AutoModelForSeq2SeqLM.from_pretrained(merged)
    weight = again.lm_head.weight
    assert weight is again.model.encoder.embed_tokens.weight
    assert weight is again.model.decoder.embed_tokens.weight


@pytest.mark.parametrize("target", TIED)
def test_lora_refuses_tied_weights(run, lora_flags, tmp_path, target):
    message = f"cannot be merged into tied weights, got .*{target}"
    with pytest.raises(ValueError, match=message):
        run("lora.py", [*lora_flags, "--target_modules", "q_proj", target])
    assert not (tmp_path / "out").exists()


def test_recurrent_model_trains_by_a_recipe(run, corpus, tmp_path):
    script = "reproduction/recurrent_model.py"
    names = runpy.run_path(str(ROOT / "examples" / script))
    shown = re.findall(r"--\w+ \S+", names["__doc__"])
    assert parse_recipe(" ".join(shown).split()).model.d_model == 320
    sizes = "--vocab_size 300 --d_model 16 --encoder_layers 2 --decoder_layers 2"
    folder = tmp_path / "out"
    words = [*sizes.split(), "--max_steps", "2", "--output_dir", folder]
    printed = run(script, [*files(corpus, "train", "validation"), *words])
    assert f"The model is in {folder}." in printed
    assert "bleu" in (folder / "metrics.jsonl").read_text()
    assert translate_with(folder).shape[1] > 1


def smaller_config(**sizes):
    sizes |= {"d_model": 128, "encoder_layers": 1, "decoder_layers": 1}
    sizes |= {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
    return VanillaTransformerConfig(**sizes)


def test_train_from_scratch_learns_its_sentences(run, corpus, tmp_path):
    sources = []
    for end in ("en", "de"):
        lines = (corpus / f"train.{end}").read_text().splitlines()[:3]
        (tmp_path / end).write_text("".join(f"{line}\n" for line in lines))
        sources = sources or lines
    words = [tmp_path / "en", tmp_path / "de", tmp_path / "out"]
    words += ["--steps", "120", "--vocab_size", "300"]
    changes = {"WARMUP_STEPS": 400, "VanillaTransformerConfig": smaller_config}
    printed = run(SCRATCH.name, words, **changes)
    line = r"^step (?:50|100|120): ([\d.]+) nats a token$"
    losses = [*map(float, re.findall(line, printed, re.MULTILINE))]
    assert len(losses) == 3 and losses[2] < 0.5 * losses[0]
    for source, line in zip(sources, printed.splitlines()[-3:], strict=True):
        assert line.startswith(f"{source} → ") and line.partition(" → ")[2]
    assert len(SCRATCH.read_text().splitlines()) <= 150


def test_train_from_scratch_refuses_files_of_different_lengths(run, tmp_path):
    (tmp_path / "en").write_text("One.\nTwo.\n")
    (tmp_path / "de").write_text("Eins.\n")
    with pytest.raises(ValueError, match="shorter"):
        run(SCRATCH.name, [tmp_path / "en", tmp_path / "de", tmp_path / "out"])
    assert not (tmp_path / "out").exists()


@pytest.mark.sweep
def test_image_classification_learns_directions(run, tmp_path):
    flags = ["--output_dir", tmp_path, "--use_cpu", "--disable_tqdm", "true"]
    said = run("image_classification.py", flags)
    accuracy = float(re.search(r"Accuracy on 400 new images: ([\d.]+)%", said)[1])
    assert accuracy > 60


@pytest.mark.sweep
def test_time_series_forecasting_beats_repeating_the_last_value(run, tmp_path):
    flags = ["--use_cpu", "--disable_tqdm", "true", "--num_train_epochs", "4"]
    said = run("time_series_forecasting.py", ["--output_dir", tmp_path, *flags])
    values = re.findall(r"([\d.]+) by (?:the model|repeating)", said)
    forecast, repeated = map(float, values)
    assert forecast < 0.75 * repeated


def test_live_captions_follows_the_words_of_cues(run, model, tmp_path):
    captions = tmp_path / "a.vtt"
    captions.write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nA <b>man</b>.\n\nNOTE x\n")
    printed = run("live_captions.py", ["--model", model, "--captions", captions, "--hide", "1"])
    assert printed.endswith("\n") and "<b>" not in printed
    names = runpy.run_path(str(ROOT / "examples" / "live_captions.py"))
    assert [*names["read_words"](captions.read_text())] == [(1.0, "A"), (1.5, "man.")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_docstring_of_an_example_names_existing_flags(path):
    names = runpy.run_path(str(path))
    trainers = ("TokenBudgetTrainingArguments", "Seq2SeqTrainingArguments")
    trainers += ("TrainingArguments",)
    known = fields(next(names[name] for name in trainers if name in names))
    known += fields(names["Arguments"]) if "Arguments" in names else ()
    known = {item.name for item in known}
    flags = set(re.findall(r"--(\w+)", names["__doc__"])) - {"nproc_per_node"}
    assert flags and flags <= known


DICTIONARY = """;;; a comment
thought TH AO1 T
read R EH1 D # past
read(2) R IY1 D
record R AH0 K AO1 R D
record(2) R EH1 K ER0 D
record(3) R EH0 K ER1 D
"""


def test_letters_to_phonemes_writes_the_pronunciations_of_each_word(run, tmp_path):
    dictionary = tmp_path / "words.dict"
    dictionary.write_text(DICTIONARY)
    arguments = [tmp_path / "data", "--dictionary", dictionary]
    printed = run("letters_to_phonemes.py", arguments, choose_split=SPLITS.get)
    assert printed == "train: 2 lines, val: 1 lines, test: 1 lines\n"
    texts = {path.name: path.read_text() for path in (tmp_path / "data").iterdir()}
    assert texts == {
        "train.letters": "record\nrecord\n",
        "train.phonemes": "R AH K AO R D\nR EH K ER D\n",
        "val.letters": "thought\n",
        "val.phonemes": "TH AO T\n",
        "test.letters": "read\n",
        "test.phonemes": "R EH D\n",
        "test.phonemes.2": "R IY D\n",
    }


SPLITS = {"record": "train", "thought": "val", "read": "test"}


def test_letters_to_phonemes_splits_words_by_their_hashes():
    choose_split = runpy.run_path(str(ROOT / "examples" / "letters_to_phonemes.py"))["choose_split"]
    counts = Counter(choose_split(f"word{number}") for number in range(10_000))
    assert 900 < counts["test"] < 1_100 and 150 < counts["val"] < 250
