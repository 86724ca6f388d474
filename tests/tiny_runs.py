"""Run training of a tiny model on a tiny corpus, in this process or in others, and distillation of a
tiny teacher.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from tests.processes import Forked, TwoProcesses
from tests.tiny import TINY_SIZES, TINY_VOCAB_SIZE, tiny_model, tiny_tokenizer, write_tiny_corpus
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.extensions.distillation.distill import distill
from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training import trainer
from vanilla_transformer.training.checkpoint import list_checkpoints
from vanilla_transformer.training.recipe import parse_recipe, read_recipe
from vanilla_transformer.training.trainer import train

ROOT = Path(__file__).parents[1]
SLOW_DISK = Path(__file__).with_name("slow_disk.py")
TINY = TINY_SIZES | {"vocab_size": 280, "max_tokens": 64, "dropout": 0.0}
TINY |= {"warmup_steps": 10, "max_steps": 6, "logging_steps": 2}
TINY |= {"eval_steps": 4, "save_steps": 3, "average_checkpoints": 2}


def watch_attention(monkeypatch):
    """Return a list that gets, for each attention, whether it trains and whether cuDNN's attention
    is enabled.
    """
    seen, attend = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*tensors, **options):
        seen.append((torch.is_grad_enabled(), torch.backends.cuda.cudnn_sdp_enabled()))
        return attend(*tensors, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    return seen


def flags(corpus, output, **changes):
    options = text_files(corpus) | {"output_dir": output} | TINY
    if changes.get("lr_scheduler") == "constant":
        options["warmup_steps"] = None
    return to_words(options | changes)


def text_files(corpus):
    """Return the flags of the files of a corpus for training and validation."""
    files = {"train_source": corpus / "train.a", "train_target": corpus / "train.b"}
    files["validation_source"] = corpus / "validation.a"
    return files | {"validation_target": corpus / "validation.b"}


def to_words(options):
    """Return flags as a command gets them, without those that are None."""
    words = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return words


# Keys of recipes that name the text, which the tiny corpus replaces.
_CORPUS = {"corpora", "validation", "dataset", "source_language", "target_language"}
_CORPUS |= {"test_source", "test_target"}


def read_without_corpus(path):
    """Return the values of a recipe, without its text."""
    return {name: value for name, value in read_recipe(path).items() if name not in _CORPUS}


class Killed(BaseException):
    """Stand for `kill -9` in a single process."""


def kill_at_step(recipe, monkeypatch, step):
    """Train until `step` steps are made, then crash."""
    unpatched = trainer.train_step

    def killing(state, micro_batches):
        if state.step == step:
            raise Killed
        return unpatched(state, micro_batches)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer, "train_step", killing)
        train(recipe, evaluate=no_scores)


def _flip_bit(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = {
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "cut": lambda content: content[: len(content) // 2],
    "a flipped bit": _flip_bit,
    "missing": None,
}


def damage_file(path, damage):
    """Damage a file in one of the ways of `DAMAGES`."""
    change, content = DAMAGES[damage], path.read_bytes()
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(content))


_final_evaluations: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of each model


def no_scores(model, tokenizer, pairs, **generate_kwargs):
    """Return the beam size for BLEU, and for chrF a lower number for each final model, so that the
    first one wins.
    """
    if "num_beams" not in generate_kwargs:  # which validations during training have
        _final_evaluations[model] = _final_evaluations.get(model, 0) + 1
    beams = float(generate_kwargs.get("num_beams", model.generation_config.num_beams or 1))
    return {"bleu": beams, "chrf": float(-_final_evaluations.get(model, 0))}


def train_tiny(corpus, folder, evaluate=no_scores, **changes):
    """Train a tiny model on the corpus of a folder, and return the folder of the run."""
    return train(parse_recipe(flags(corpus, folder, **changes)), evaluate=evaluate)


def wait_for_metrics(folder):
    """Wait until training in another process has logged its first steps, after which it handles
    signals.
    """
    deadline = time.monotonic() + 120
    path = folder / "metrics.jsonl"
    while time.monotonic() < deadline:
        if path.exists() and entries(folder):
            return
        time.sleep(0.1)


def entries(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_same_run(straight, resumed):
    """Compare weights, optimizer, data order, schedule, averages and all logged values bit for
    bit.
    """
    for name in ("model.safetensors", "ema/model.safetensors"):
        assert_equal_tensors(load_file(straight / name), load_file(resumed / name))
    last = [list_checkpoints(folder)[-1] for folder in (straight, resumed)]
    ours, theirs = map(training_state, last)
    assert ours["param_groups"] == theirs["param_groups"]
    for name in ("step", "batch_sampler", "lr_scheduler", "best"):
        assert ours["progress"][name] == theirs["progress"][name]
    assert_equal_tensors(*map(trainer_tensors, last))
    assert without_times(entries(straight)) == without_times(entries(resumed))


def training_state(checkpoint):
    return json.loads((checkpoint / "training_state.json").read_text())


def assert_equal_tensors(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if not torch.equal(ours[name], theirs[name])]


def without_times(lines):
    kept = []
    for line in lines:
        kept.append(dict(line))
        for name in ("minutes", "tokens_per_second", "peak_memory_gib"):
            kept[-1].pop(name, None)
    return kept


def trainer_tensors(checkpoint):
    """Read the tensors of optimizer and EMA, of a plain or a sharded checkpoint."""
    shards = checkpoint / "shards"
    if not shards.exists():
        averages = load_file(checkpoint / "ema.safetensors")
        return load_file(checkpoint / "optimizer.safetensors") | averages
    tensors = {}
    metadata = dcp.FileSystemReader(shards).read_metadata()
    for name, kind in metadata.state_dict_metadata.items():
        tensors[name] = torch.empty(kind.size, dtype=kind.properties.dtype)
    dcp.load(tensors, checkpoint_id=shards)
    return tensors


def start(arguments, script=ROOT / "scripts" / "train.py"):
    """Start the training script in one process."""
    return Forked([script, *arguments], os.environ | {"OMP_NUM_THREADS": "1"})


def start_two(arguments, script=ROOT / "scripts" / "train.py"):
    """Start the training script in two processes."""
    return TwoProcesses([script, *arguments])


def launch(launcher, arguments, script=ROOT / "scripts" / "train.py"):
    """Start the training script by a launcher, as a user does, in a separate process group."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *launcher, str(script), *arguments]
    options = {"text": True, "start_new_session": True, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, **options)


def finish(process, timeout=240):
    """Wait until the training of `start`, `start_two` or `launch` has succeeded, and return its
    messages.
    """
    _, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return errors


def assert_similar_weights(one, other):
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (one, other))
    torch.testing.assert_close(theirs, ours, atol=2e-5, rtol=1e-4)


def assert_two_processes_match_one(corpus, tmp_path, **model):
    """Compare two processes with one that accumulates the two batches of a step."""
    common = {"max_steps": 5, "save_steps": 5, "eval_steps": 5, **model}
    finish(start_two(flags(corpus, tmp_path / "two", **common)))
    common["gradient_accumulation_steps"] = 2
    run = train_tiny(corpus, tmp_path / "one", **common)
    assert_similar_weights(tmp_path / "two", run)
    ours, theirs = entries(run), entries(tmp_path / "two")
    assert [entry["step"] for entry in theirs] == [entry["step"] for entry in ours]
    assert theirs[0]["loss"] == pytest.approx(ours[0]["loss"], rel=1e-4)
    loss = ours[-1]["validation_loss"]
    assert theirs[-1]["validation_loss"] == pytest.approx(loss, rel=1e-4)


# Translations of a random model have warnings.
OPTIONS = TINY | {"drop_warnings": False, "drop_lowest_scores": 0.2, "ema_decay": 0.9}


def write_files(folder):
    """Write a corpus and the models `teacher`, `other` and, with another vocabulary, `german`.

    Return the folder.
    """
    write_tiny_corpus(folder)
    for seed, name in enumerate(("teacher", "other")):
        save_model_folder(tiny_model(seed), tiny_tokenizer(), folder / name)
    german = train_tokenizer(["Zwei Hunde laufen.", "Ein Hund schläft."] * 4, TINY_VOCAB_SIZE)
    save_model_folder(tiny_model(), german, folder / "german")
    return folder


def in_other_letters(source):
    return source.translate(str.maketrans("abcde", "vwxyz"))


def write_candidates(path, scored=True):
    """Write the tiny corpus as sources with three candidates: a wrong one, the translation, and a
    longer one.
    """
    with path.open("w") as file:
        sources = (path.parent / "train.a").read_text().splitlines()
        for number, source in enumerate(sources):
            translation = in_other_letters(source)
            wrong = (f"{translation} 1234", "Мужчина спит.")[number % 2]
            candidates = [{"text": wrong}, {"text": translation}, {"text": f"{translation} q"}]
            if scored:
                scores = (2.0, 1.0 + number / 100, 0.5)
                for candidate, score in zip(candidates, scores, strict=True):
                    candidate["score"] = score
            file.write(json.dumps({"source": source, "candidates": candidates}) + "\n")
    return path


def distillation_flags(files, folder, **changes):
    options = text_files(files) | {"test_source": files / "validation.a"}
    options["test_target"] = files / "validation.b"
    options |= {"teacher": files / "teacher", "output_dir": folder}
    options["cache_dir"] = files / "cache"
    return to_words(options | OPTIONS | changes)


# Of flags, for text without translations.
CANDIDATES = dict.fromkeys(("train_source", "train_target", "teacher")) | {"drop_warnings": True}
MONOLINGUAL = {"train_target": None}


def distill_tiny(files, folder, **changes):
    arguments = parse_distillation(distillation_flags(files, folder, **changes))
    return distill(*arguments, evaluate=no_scores)
