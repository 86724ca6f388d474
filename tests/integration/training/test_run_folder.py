"""Finish, continue, protect and lock the folder of a run."""

import os
import shutil
from itertools import product
from pathlib import Path

import pytest
from filelock import FileLock

from tests.sweeps import rare, sample
from tests.tiny import write_tiny_corpus
from tests.tiny_runs import (
    DAMAGES,
    Killed,
    assert_same_run,
    damage_file,
    entries,
    flags,
    kill_at_step,
    no_scores,
    without_times,
)
from vanilla_transformer.training import train_state, trainer
from vanilla_transformer.training.checkpoint import list_checkpoints
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.utils import file_utils

RUN = {"max_steps": 4, "save_steps": 2, "eval_steps": 2, "ema_decay": 0.9}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Write the corpus and train a run by relative paths, so that copies of both can be resumed."""
    folder = write_tiny_corpus(tmp_path_factory.mktemp("template"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(parse_recipe(flags(Path(), Path("straight"), **RUN)), evaluate=no_scores)
    return folder


@pytest.fixture
def corpus(template, tmp_path, monkeypatch):
    for path in template.glob("*.[ab]"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return Path()


@pytest.fixture
def finished(corpus, template, tmp_path):
    shutil.copytree(template / "straight", tmp_path / "straight")
    return Path("straight")


def contents(folder):
    """Return the files of a run except its metrics, which have times."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "metrics.jsonl")]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def kill_at_move(patch, folder, number):
    """Kill the process at move `number` of a model into the existing folder `folder`: it moves and deletes no more."""
    replace, moved = os.replace, []

    def killing(source, target):
        if file_utils.temporary_prefix(folder) in str(source):
            moved.append(target)
            if len(moved) >= number:
                raise Killed
        replace(source, target)

    patch.setattr(file_utils.os, "replace", killing)


@pytest.mark.parametrize("number", [1, 5, 10])
def test_train_finishes_run_killed_between_moves_of_final_model(corpus, tmp_path, monkeypatch, finished, number):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at_move(patch, tmp_path / "killed", number)
        train(recipe, evaluate=no_scores)
    assert not file_utils.has_weights(tmp_path / "killed")
    assert_same_run(finished, train(recipe, evaluate=no_scores))
    assert not list((tmp_path / "killed").glob(".*tmp*"))


def test_train_has_finished_run_killed_after_final_model(corpus, tmp_path, monkeypatch, finished):
    def killing(_):
        raise Killed

    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(train_state.TrainState, "close", killing)
        train(recipe, evaluate=no_scores)
    assert_same_run(finished, train(recipe, evaluate=no_scores))


def test_train_returns_finished_run_at_once(corpus, finished, monkeypatch, caplog):
    monkeypatch.setattr(trainer, "train_step", None)
    written = [path for path in finished.iterdir() if path.name != ".lock"]  # filelock decides when to write it
    before = {path: path.stat().st_mtime_ns for path in written}
    with caplog.at_level("INFO", "vanilla_transformer"):
        assert train(parse_recipe(flags(corpus, finished, **RUN)), evaluate=no_scores) == finished
    assert {path: path.stat().st_mtime_ns for path in finished.iterdir() if path.name != ".lock"} == before
    assert "is finished. Raise max_steps or max_minutes" in caplog.text


FOLDERS = {".": "In straight, {}. The model is made again", "ema": "In straight/ema, {}. The model is made again"}
FOLDERS["best-2"] = "In straight/best-2, {}. The model was written again from straight/checkpoint-2"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
FILES += ("modeling_vanilla_transformer.py", "sha256.json")
EDITS = [("generation_config.json", "a flipped bit"), ("sha256.json", "missing")]  # by people; all is whole


@pytest.mark.parametrize(
    ("folder", "name", "damage"),
    sample(
        [each for each in product(FOLDERS, FILES, DAMAGES) if each[1:] not in EDITS],
        (".", "model.safetensors", "a flipped bit"),
        (".", "tokenizer.json", "zeros"),
        ("ema", "config.json", "missing"),
        ("best-2", "model.safetensors", "cut"),
    ),
)
def test_train_makes_damaged_models_again_bit_for_bit(corpus, finished, monkeypatch, caplog, folder, name, damage):
    monkeypatch.setattr(trainer, "train_step", None)
    before, log = contents(finished), without_times(entries(finished))
    damage_file(finished / folder / name, damage)
    train(parse_recipe(flags(corpus, finished, **RUN)), evaluate=no_scores)
    assert contents(finished) == before and without_times(entries(finished)) == log
    found = f"{name} is {'missing' if damage == 'missing' else 'damaged'}"
    if (name, damage) == ("sha256.json", "a flipped bit"):  # of the hash of the first file
        found = "model.safetensors is damaged"
    assert FOLDERS[folder].format(found) in caplog.text


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("damage", ["a flipped bit", rare("missing")])
def test_train_names_a_damaged_file_that_no_checkpoint_can_make_again(corpus, finished, folder, damage):
    for checkpoint in list_checkpoints(finished):
        shutil.rmtree(checkpoint)
    damage_file(finished / folder / "model.safetensors", damage)
    before = contents(finished)
    match = f"In {finished / folder}, model.safetensors is .*, and no .*checkpoint .*can make it again. Restore it"
    with pytest.raises(ValueError, match=match):
        train(parse_recipe(flags(corpus, finished, **RUN)), evaluate=no_scores)
    assert contents(finished) == before


def own_the_folder(folder):
    (folder / "sha256.json").unlink()
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace('"dropout": 0.0', '"dropout": 0.1')
    )


@pytest.mark.parametrize(
    "edit",
    [
        lambda folder: (folder / "README.md").write_text("# A model"),
        lambda folder: (folder / "generation_config.json").write_text('{"num_beams": 2}'),
        lambda folder: file_utils.update_json(folder / "config.json", {"alignment_heads": [[0, 1]]}),
        own_the_folder,
        lambda folder: shutil.rmtree(folder / "ema"),
        lambda folder: shutil.rmtree(folder / "best-2"),
    ],
)
def test_train_leaves_a_finished_run_that_people_have_changed(corpus, finished, monkeypatch, edit):
    monkeypatch.setattr(trainer, "_train", None)
    edit(finished)
    before = contents(finished)
    train(parse_recipe(flags(corpus, finished, **RUN)), evaluate=no_scores)
    assert contents(finished) == before


@pytest.mark.parametrize("name", FILES[:3])
def test_train_makes_a_model_without_hashes_again_if_it_cannot_be_loaded(corpus, finished, caplog, name):
    before = contents(finished)
    (finished / "sha256.json").unlink()
    damage_file(finished / name, "cut")
    train(parse_recipe(flags(corpus, finished, **RUN)), evaluate=no_scores)
    assert contents(finished) == before and "The model is made again" in caplog.text


def test_train_resumes_with_a_damaged_line_of_metrics(corpus, tmp_path, monkeypatch, caplog, finished):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **RUN))
    kill_at_step(recipe, monkeypatch, 3)
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_bytes(b'{"step": 2, "los\n' + path.read_bytes() + b'{"step": 3, "l')
    train(recipe, evaluate=no_scores)
    assert_same_run(finished, tmp_path / "run")
    assert f"{path} is damaged and read without line 1." in caplog.text


def test_train_continues_finished_run_bit_for_bit(corpus, tmp_path, finished):
    longer = RUN | {"max_steps": 7}
    straight = train(parse_recipe(flags(corpus, tmp_path / "longer", **longer)), evaluate=no_scores)
    assert_same_run(straight, train(parse_recipe(flags(corpus, finished, **longer)), evaluate=no_scores))


def test_train_refuses_model_that_it_has_not_written(corpus, tiny_model, tiny_tokenizer, tmp_path):
    folder = file_utils.save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    with pytest.raises(ValueError, match=r"already holds a model .* neither recipe.json nor a checkpoint tells"):
        train(parse_recipe(flags(corpus, folder, **RUN)))


def test_train_refuses_to_continue_without_checkpoints(corpus, finished):
    for folder in list_checkpoints(finished):
        shutil.rmtree(folder)
    with pytest.raises(ValueError, match="its checkpoints have been deleted"):
        train(parse_recipe(flags(corpus, finished, **RUN | {"max_steps": 9})))


def test_train_with_overwrite_resumes_its_own_run(corpus, tmp_path, monkeypatch, finished):
    train(parse_recipe(flags(corpus, tmp_path / "run", **RUN, seed=1)), evaluate=no_scores)
    overwriting = parse_recipe(flags(corpus, tmp_path / "run", **RUN, overwrite_output_dir=True))
    kill_at_step(overwriting, monkeypatch, 3)
    monkeypatch.setattr(trainer.RunFolder, "start", checking_step(trainer.RunFolder.start, 2))
    assert_same_run(finished, train(overwriting, evaluate=no_scores))


def checking_step(start, step):
    """Wrap `RunFolder.start` in a check of the step from which it resumes."""

    def checked(run, state, corpus):
        assert state.step == step
        start(run, state, corpus)

    return checked


def test_train_with_overwrite_replaces_run_of_other_recipe(corpus, tmp_path, monkeypatch, finished):
    kill_at_step(parse_recipe(flags(corpus, tmp_path / "run", **RUN, seed=1)), monkeypatch, 3)
    overwriting = parse_recipe(flags(corpus, tmp_path / "run", **RUN, overwrite_output_dir=True))
    assert_same_run(finished, train(overwriting, evaluate=no_scores))


def test_train_with_overwrite_leaves_no_moving_average_of_the_former_run(corpus, finished):
    for name in (".ema.tmp-12ab12ab12ab12ab/.lock", "ema/.ema.tmp-34cd34cd34cd34cd/.lock"):
        file_utils.write_text_atomically(finished / name, "")
    train(parse_recipe(flags(corpus, finished, **RUN | {"max_steps": 6})), evaluate=no_scores)
    assert not [*finished.rglob(".ema.tmp-*")] and (finished / "ema").exists()
    overwriting = flags(corpus, finished, **RUN | {"ema_decay": None}, overwrite_output_dir=True)
    train(parse_recipe(overwriting), evaluate=no_scores)
    assert not (finished / "ema").exists()


def test_train_refuses_folder_of_running_process(corpus, tmp_path):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **RUN))
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(ValueError, match="Only one run may use"):
        train(recipe, evaluate=no_scores)
    train(recipe, evaluate=no_scores)  # the lock is free again


def change_training_text(corpus):
    lines = (corpus / "train.a").read_text().splitlines()
    (corpus / "train.a").write_text("\n".join([lines[1], *lines[1:]]) + "\n")


def change_validation_text(corpus):
    lines = (corpus / "validation.a").read_text().splitlines()
    (corpus / "validation.a").write_text("\n".join([*lines[:-1], lines[0]]) + "\n")


@pytest.mark.parametrize(
    "change, name", [(change_training_text, "training text"), (change_validation_text, "validation text")]
)
def test_train_refuses_to_resume_with_changed_text(corpus, tmp_path, monkeypatch, change, name):
    options = flags(corpus, tmp_path / "run", **RUN)
    kill_at_step(parse_recipe(options), monkeypatch, 3)
    change(corpus)
    with pytest.raises(ValueError, match=f"these have changed: {name}. Restore"):
        train(parse_recipe(options), evaluate=no_scores)
    folder = train(parse_recipe([*options, "--allow_changed_data"]), evaluate=no_scores)
    assert entries(folder)[-1]["step"] == 4


def test_train_refuses_to_resume_with_changed_tokenizer(corpus, tmp_path, monkeypatch, tiny_tokenizer):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    options = flags(corpus, tmp_path / "run", **RUN | {"vocab_size": None}, tokenizer=tmp_path / "tokenizer")
    kill_at_step(parse_recipe(options), monkeypatch, 3)
    path = tmp_path / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text().replace('"prepend": " "', '"prepend": "_"'))
    with pytest.raises(ValueError, match="these have changed: tokenizer"):
        train(parse_recipe(options), evaluate=no_scores)


@pytest.mark.parametrize(
    "name", ["model.safetensors", rare("training_state.json"), rare("optimizer.safetensors"), "sha256.json"]
)
def test_train_falls_back_from_checkpoint_with_flipped_bit(corpus, tmp_path, monkeypatch, caplog, name):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **RUN | {"save_steps": 1}))
    kill_at_step(recipe, monkeypatch, 3)
    damaged = list_checkpoints(tmp_path / "run")[-1] / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with caplog.at_level("INFO", "vanilla_transformer"):
        train(recipe, evaluate=no_scores)
    assert "checkpoint-3 is damaged" in caplog.text
    assert "Resuming from step 2" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("checkpoint-500/model.safetensors", "one of this package, but .*checkpoint-500 is none. Move it, choose"),
        ("best-7/config.json", "one that this command wrote, but .* has best-7. Choose"),
        ("ema/notes", "one that this command wrote, but .* has ema. Choose"),
        ("model-00001-of-00002.safetensors", "one that this command wrote, but .* has model-00001-of-00002"),
        ("config.json", "one that this command wrote, but .* has config.json"),
    ],
)
def test_train_leaves_files_of_others(corpus, tmp_path, name, message):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(ValueError, match=message):
        train(parse_recipe(flags(corpus, tmp_path / "run", **RUN)), evaluate=no_scores)
    assert path.read_text() == "mine" and len([*(tmp_path / "run").rglob("[a-z]*")]) <= 2


def test_train_uses_a_folder_with_other_folders_and_hidden_files(corpus, tmp_path):
    (tmp_path / "run" / "corpus").mkdir(parents=True)
    (tmp_path / "run" / ".gitkeep").touch()
    assert train(parse_recipe(flags(corpus, tmp_path / "run", **RUN)), evaluate=no_scores)


def test_train_refuses_a_checkpoint_of_others_beside_its_own(corpus, tmp_path, monkeypatch):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **RUN))
    kill_at_step(recipe, monkeypatch, 3)
    path = tmp_path / "run" / "checkpoint-4" / "trainer_state.json"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(ValueError, match="checkpoint-4 is none. Move it"):
        train(recipe, evaluate=no_scores)


@pytest.mark.parametrize("files", [[], rare(["sha256.json"]), rare(["training_state.json", "model.safetensors"])])
def test_train_resumes_before_an_empty_checkpoint(corpus, tmp_path, monkeypatch, caplog, finished, files):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **RUN))
    kill_at_step(recipe, monkeypatch, 3)
    (tmp_path / "run" / "checkpoint-3").mkdir()
    for name in files:
        (tmp_path / "run" / "checkpoint-3" / name).touch()
    assert_same_run(finished, train(recipe, evaluate=no_scores))
    assert "checkpoint-3 is damaged (sha256.json is" in caplog.text


def test_train_names_a_damaged_checkpoint_only_if_the_mean_needs_it(corpus, tmp_path, monkeypatch, caplog):
    options = RUN | {"save_steps": 1, "max_steps": 5, "average_checkpoints": 2, "keep_last": 4}
    recipe, folder = parse_recipe(flags(corpus, tmp_path / "run", **options)), tmp_path / "run"
    kill_at_step(recipe, monkeypatch, 4)
    damage_file(folder / "checkpoint-3" / "model.safetensors", "a flipped bit")
    train(recipe, evaluate=no_scores)
    assert "checkpoint-3 is damaged (model.safetensors is damaged). Restore it" in caplog.text
    damage_file(folder / "checkpoint-4" / "model.safetensors", "a flipped bit")
    damage_file(folder / "model.safetensors", "a flipped bit")
    with pytest.raises(
        ValueError, match=r"checkpoint-4 is damaged \(model.safetensors is damaged\), and its weights are"
    ):
        train(recipe, evaluate=no_scores)


def test_train_does_not_restart_a_run_whose_checkpoints_are_damaged(corpus, tmp_path, monkeypatch, finished):
    recipe = flags(corpus, tmp_path / "run", **RUN)
    kill_at_step(parse_recipe(recipe), monkeypatch, 3)
    for folder in list_checkpoints(tmp_path / "run"):
        (folder / "sha256.json").unlink()
    before = contents(folder)
    with pytest.raises(ValueError, match=r"checkpoint-2 is damaged \(sha256.json is missing\). Restore it, choose"):
        train(parse_recipe(recipe), evaluate=no_scores)
    assert contents(folder) == before
    assert_same_run(finished, train(parse_recipe([*recipe, "--overwrite_output_dir"]), evaluate=no_scores))


def test_train_resumes_in_a_folder_that_has_only_the_checkpoint(corpus, tmp_path, monkeypatch, finished):
    kill_at_step(parse_recipe(flags(corpus, tmp_path / "killed", **RUN)), monkeypatch, 3)
    shutil.copytree(tmp_path / "killed" / "checkpoint-2", tmp_path / "copy" / "checkpoint-2")
    resumed = train(parse_recipe(flags(corpus, tmp_path / "copy", **RUN)), evaluate=no_scores)
    assert list_checkpoints(resumed)[-1].name == "checkpoint-4"


@pytest.mark.parametrize("name", [".", "checkpoint-4"])
def test_train_refuses_to_replace_the_model_that_it_starts_from(corpus, finished, name):
    model = {"init_from": finished / name, "vocab_size": None}
    with pytest.raises(ValueError, match="must be another folder than the one of a model that is read, but"):
        train(parse_recipe(flags(corpus, finished, **RUN | model, overwrite_output_dir=True)), evaluate=no_scores)
