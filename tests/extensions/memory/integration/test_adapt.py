"""`adapt` keeps a model that learned from a memory, if other text did not get worse."""

import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.evaluation import test_sets
from vanilla_transformer.extensions.memory import adaptation
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.signals import TrainingInterrupted

SEARCH = ["--num_beams", "1", "--max_new_tokens", "4", "--bootstrap_samples", "2", "--threads", "1"]
GENERAL = ["--source", "general.en", "--target", "general.de"]
MODEL = {"model.safetensors", "config.json", "generation_config.json", "sha256.json"}
MODEL |= {"tokenizer.json", "tokenizer_config.json"}
WORDS = ["black", "blue", "brown", "gray", "green", "red", "white", "yellow"]
LENIENT = ["--max_score_drop", "100", "--max_lost", "1000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    save_model_folder(tiny_model(), tiny_tokenizer(), folder / "model")
    animals, verbs = ["dog", "cat", "child", "man", "bird"], ["runs", "sleeps", "sings", "reads"]
    lines = []
    for number in range(200):
        words = [animals[number % 5], verbs[number // 5 % 4], "abcdefghij"[number // 20] * 3]
        lines.append(f"The {' '.join(words)}.\tDer {' '.join(words)}.\n")
    (folder / "a.tsv").write_text("".join(lines))
    (folder / "small.tsv").write_text("".join(lines[:199]) + "THE DOG runs, aaa 2\tB\n")
    for code in ("en", "de"):
        (folder / f"general.{code}").write_text("A man.\nTwo dogs run.\n")
    return folder


@pytest.fixture
def new(folder, tmp_path, monkeypatch):
    """Return the folder of the adapted model, and work in the one with the text."""
    monkeypatch.chdir(folder)
    return tmp_path / "new"


def adapt(new, *words, memory="a.tsv"):
    return main(["adapt", "model", memory, "--output_dir", str(new), *SEARCH, *words])


def test_adapt_keeps_a_part_of_what_it_learned(new, monkeypatch, capsys):
    trained, learned, train = {}, [], adaptation.train

    def read_trained(recipe):
        learned.extend(Path(recipe.data.train_source).read_text().splitlines())
        run = train(recipe)
        trained.update(load_file(run / "model.safetensors"))
        return run

    monkeypatch.setitem(adaptation._SETTINGS, "num_train_epochs", 1)
    monkeypatch.setattr(adaptation, "train", read_trained)
    assert adapt(new, *GENERAL, *LENIENT) == 0
    before, after = (load_file(path / "model.safetensors") for path in (Path("model"), new))
    assert f"The adapted model is in {new}." in capsys.readouterr().out
    changed = set()
    for name, weight in after.items():
        torch.testing.assert_close(weight, (before[name] + trained[name]) / 2)
        if not torch.equal(weight, before[name]):
            changed.add(name.split(".")[-2])
    assert changed == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    assert {path.name for path in new.iterdir() if path.suffix != ".py"} == MODEL
    assert len(learned) == 181 and len({*learned} & {"A man.", "Two dogs run."}) == 1


def test_refused_model_leaves_a_line_for_each_reason(new, monkeypatch, capsys):
    monkeypatch.setattr(adaptation, "train_adapter", lambda model, *_: Path(model))
    with pytest.raises(SystemExit) as refusal:
        adapt(new, *GENERAL, "--max_size_ratio", "0.5")
    reason = "parameters: 1.00 times as much, above 0.5"
    lines = [f"held-out pairs of the memory: {reason}", f"general text: {reason}"]
    assert str(refusal.value).splitlines() == ["The adapted model was not kept:", *lines]
    assert not new.exists()
    printed = capsys.readouterr().out
    assert "# General text\n\nThe new model is worse:" in printed


def test_ctrl_c_leaves_nothing(new, monkeypatch, capsys):
    def interrupt(recipe):
        raise TrainingInterrupted("The same command resumes.")

    monkeypatch.setattr(adaptation, "train", interrupt)
    assert adapt(new) == 128 + signal.SIGINT
    assert capsys.readouterr().err.endswith("\nInterrupted.\n")
    assert not new.exists()


def test_small_memory_is_refused(new, capsys):
    assert adapt(new, memory="small.tsv") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "200 different sources or more to learn from, got 199. Give more files" in line


def test_short_general_text_is_refused(new, tmp_path, capsys):
    general = []
    for side in ("source", "target"):
        path = tmp_path / f"general.{side}"
        path.write_text("A man.\na MAN!\n\n")
        general += [f"--{side}", str(path)]
    assert adapt(new, *general) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "General text must have 2 sources or more" in line and "got 1. Give a longer" in line


def test_split_general_text_learns_half_of_it(tmp_path):
    lines = []
    for word in WORDS:
        lines += [f"Open {word} 1.\n", "\n", f"open {word} 2\n"]
    paths = [str(tmp_path / "general.en"), str(tmp_path / "general.de")]
    for path in paths:
        Path(path).write_text("".join(lines))
    held_by_memory = test_sets.TestSet(["OPEN blue", "OPEN red"], ["", ""])
    training, test = adaptation.split_general_text(*paths, 100, held_by_memory)
    learned = {pair.source.split()[1] for pair in training}
    held_out = {source.split()[1] for source in test.sources}
    assert len(training) == 6 and len(learned) == len(test.sources) == 3
    assert learned | held_out == {*WORDS} - {"blue", "red"}
    assert adaptation.split_general_text(*paths, 2, held_by_memory) == (training[:2], test)


def test_split_memory_keeps_near_duplicates_together(tmp_path):
    lines = []
    for number in range(300):
        word = f"{'abcdefghij'[number // 30]}{'abcdefghij'[number % 10]}{'xyz'[number // 10 % 3]}"
        lines += [f"Open {word} 1.\told\n", f"open  {word} 2\tother\n", f"Open {word} 1.\tnew\n"]
    path = tmp_path / "m.tsv"
    path.write_text("".join(lines))
    training, held_out = adaptation.split_memory([str(path)], (None, None))
    learned = {pair.source.split()[1] for pair in training}
    kept = {source.split()[1] for source in held_out.sources}
    assert len(held_out.sources) == len(kept) == 30
    assert len(learned) == 270 and not learned & kept
    assert {pair.target for pair in training} == {"new", "other"}
