"""Finish, continue, protect and lock the folder of a run."""

import os
import shutil
from itertools import product
from pathlib import Path

import pytest
from filelock import FileLock

from tests.sweeps import rare, sample
from tests.tiny import tiny_model, tiny_tokenizer, write_tiny_corpus
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
from vanilla_transformer.errors import UserError
from vanilla_transformer.files import atomic, hashes
from vanilla_transformer.files.model_folders import has_weights
from vanilla_transformer.loading import model_folders
from vanilla_transformer.training import train_state, trainer
from vanilla_transformer.training.checkpoint import list_checkpoints
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

RUN = {"max_steps": 4, "save_steps": 2, "eval_steps": 2, "ema_decay": 0.9}


def run_recipe(folder, **changes):
    return parse_recipe(flags(Path(), folder, **RUN | changes))


def run(folder, **changes):
    """Train the tiny run in the folder of the corpus, and return its folder."""
    return train(run_recipe(folder, **changes), evaluate=no_scores)


def run_until_killed(monkeypatch, step=3, folder="run", **changes):
    """Train in a folder until `step` steps are made, and return the folder."""
    kill_at_step(run_recipe(Path(folder), **changes), monkeypatch, step)
    return Path(folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Write the corpus and train a run by relative paths, so that copies of both can be resumed."""
    folder = write_tiny_corpus(tmp_path_factory.mktemp("template"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(Path("straight"))
    return folder


@pytest.fixture(autouse=True)
def corpus(template, tmp_path, monkeypatch):
    """Work in a folder with the corpus."""
    for path in template.glob("*.[ab]"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def finished(template):
    shutil.copytree(template / "straight", "straight")
    return Path("straight")


def contents(folder):
    """Return the files of a run except its metrics, which have times."""
    paths = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in (".lock", "metrics.jsonl"):
            paths[path.relative_to(folder)] = path.read_bytes()
    return paths


def kill_at_move(patch, folder, number):
    """Kill the process at move `number` of a model into the existing folder `folder`: it moves and
    deletes no more.
    """
    replace, moved = os.replace, []

    def killing(source, target):
        if f".{folder.name}.tmp-" in str(source):
            moved.append(target)
            if len(moved) >= number:
                raise Killed
        replace(source, target)

    patch.setattr(atomic.os, "replace", killing)


@pytest.mark.parametrize("number", [1, 5, 10])
def test_train_finishes_run_killed_between_moves(monkeypatch, finished, number):
    """Kill it while the final model is moved."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at_move(patch, Path("killed"), number)
        run(Path("killed"))
    assert not has_weights(Path("killed"))
    assert_same_run(finished, run(Path("killed")))
    assert not list(Path("killed").glob(".*tmp*"))


def test_train_has_finished_run_killed_after_final_model(monkeypatch, finished):
    def killing(_):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(train_state.TrainState, "close", killing)
        run(Path("killed"))
    assert_same_run(finished, run(Path("killed")))


def times_of(folder):
    """Return when each file was written, but the lock: filelock decides when to write it."""
    paths = [path for path in folder.iterdir() if path.name != ".lock"]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_train_returns_finished_run_at_once(finished, monkeypatch, caplog):
    monkeypatch.setattr(trainer, "train_step", None)
    before = times_of(finished)
    with caplog.at_level("INFO", "vanilla_transformer"):
        assert run(finished) == finished
    assert times_of(finished) == before
    assert "is finished. Raise max_steps or max_minutes" in caplog.text


FOLDERS = {".": "In straight, {}. The model is made again"}
FOLDERS["ema"] = "In straight/ema, {}. The model is made again"
FOLDERS["best-4"] = "In straight/best-4, {}. The model was written again from"
FOLDERS["best-4"] += " straight/checkpoint-4"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
FILES += ("generation_config.json", "modeling_vanilla_transformer.py", "sha256.json")
# By people; all is whole.
EDITS = [("generation_config.json", "a flipped bit"), ("sha256.json", "missing")]


@pytest.mark.parametrize(
    ("folder", "name", "damage"),
    sample(
        [case for case in product(FOLDERS, FILES, DAMAGES) if case[1:] not in EDITS],
        (".", "model.safetensors", "a flipped bit"),
        (".", "tokenizer.json", "zeros"),
        ("ema", "config.json", "missing"),
        ("best-4", "model.safetensors", "cut"),
    ),
)
def test_train_makes_damaged_models_again(finished, monkeypatch, caplog, folder, name, damage):
    monkeypatch.setattr(trainer, "train_step", None)
    before, log = contents(finished), without_times(entries(finished))
    damage_file(finished / folder / name, damage)
    run(finished)
    assert contents(finished) == before and without_times(entries(finished)) == log
    damaged = f"{name} is {'missing' if damage == 'missing' else 'damaged'}"
    # The hash of the first file.
    if (name, damage) == ("sha256.json", "a flipped bit"):
        damaged = "model.safetensors is damaged"
    assert FOLDERS[folder].format(damaged) in caplog.text


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("damage", ["a flipped bit", rare("missing")])
def test_train_names_damage_that_no_checkpoint_can_mend(finished, folder, damage):
    for checkpoint in list_checkpoints(finished):
        shutil.rmtree(checkpoint)
    damage_file(finished / folder / "model.safetensors", damage)
    before = contents(finished)
    path = finished / folder
    message = f"In {path}, model.safetensors is .*, and no .*checkpoint .*can make it again."
    with pytest.raises(UserError, match=f"{message} Restore it"):
        run(finished)
    assert contents(finished) == before


def own_the_folder(folder):
    (folder / "sha256.json").unlink()
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"dropout": 0.0', '"dropout": 0.1'))


def choose_heads(folder):
    hashes.update_json(folder / "config.json", {"alignment_heads": [[0, 1]]})


def choose_beams(folder):
    (folder / "generation_config.json").write_text('{"num_beams": 2}')


PEOPLES_CHANGES = [own_the_folder, choose_heads, choose_beams]
PEOPLES_CHANGES += [
    lambda folder: (folder / "README.md").write_text("# A model"),
    lambda folder: shutil.rmtree(folder / "ema"),
    lambda folder: shutil.rmtree(folder / "best-4"),
]


@pytest.mark.parametrize("edit", PEOPLES_CHANGES)
def test_train_leaves_a_run_that_people_have_changed(finished, monkeypatch, edit):
    monkeypatch.setattr(trainer, "_train", None)
    edit(finished)
    before = contents(finished)
    run(finished)
    assert contents(finished) == before


@pytest.mark.parametrize("name", FILES[:3])
def test_train_makes_a_broken_model_without_hashes_again(finished, caplog, name):
    before = contents(finished)
    (finished / "sha256.json").unlink()
    damage_file(finished / name, "cut")
    run(finished)
    assert contents(finished) == before and "The model is made again" in caplog.text


def test_train_resumes_with_a_damaged_line_of_metrics(monkeypatch, caplog, finished):
    path = run_until_killed(monkeypatch) / "metrics.jsonl"
    path.write_bytes(b'{"step": 2, "los\n' + path.read_bytes() + b'{"step": 3, "l')
    assert_same_run(finished, run(Path("run")))
    assert f"{path} is damaged and read without line 1." in caplog.text


def test_train_continues_finished_run_bit_for_bit(finished):
    assert_same_run(run(Path("longer"), max_steps=7), run(finished, max_steps=7))


def test_train_with_overwrite_resumes_its_own_run(monkeypatch, finished):
    run(Path("run"), seed=1)
    run_until_killed(monkeypatch, overwrite_output_dir=True)
    start = trainer.RunFolder.start

    def checked(folder, state, corpus):
        assert state.step == 2
        start(folder, state, corpus)

    monkeypatch.setattr(trainer.RunFolder, "start", checked)
    assert_same_run(finished, run(Path("run"), overwrite_output_dir=True))


def test_train_with_overwrite_replaces_run_of_other_recipe(monkeypatch, finished):
    folder = run_until_killed(monkeypatch, seed=1)
    assert_same_run(finished, run(folder, overwrite_output_dir=True))


def test_train_with_overwrite_leaves_no_former_moving_average(finished):
    former = (".ema.tmp-12ab12ab12ab12ab", "ema/.ema.tmp-34cd34cd34cd34cd")
    for name in former:
        atomic.write_text_atomically(finished / name / ".lock", "")
    run(finished, max_steps=6)
    assert not [*finished.rglob(".ema.tmp-*")] and (finished / "ema").exists()
    run(finished, ema_decay=None, overwrite_output_dir=True)
    assert not (finished / "ema").exists()


def test_train_refuses_folder_of_running_process():
    Path("run").mkdir()
    with FileLock("run/.lock"), pytest.raises(UserError, match="Only one run may use"):
        run(Path("run"))
    run(Path("run"))  # the lock is free again


def other_model(patch, folder):
    model_folders.save_model_folder(tiny_model(), tiny_tokenizer(), folder)


def no_checkpoints(patch, folder):
    for checkpoint in list_checkpoints(run(folder)):
        shutil.rmtree(checkpoint)


def checkpoint_of_others(patch, folder):
    run_until_killed(patch)
    (folder / "checkpoint-4").mkdir()
    (folder / "checkpoint-4" / "trainer_state.json").touch()


def checkpoints_without_hashes(patch, folder):
    for checkpoint in list_checkpoints(run_until_killed(patch)):
        (checkpoint / "sha256.json").unlink()


def any_run(patch, folder):
    run(folder)


OVERWRITTEN = {"vocab_size": None, "overwrite_output_dir": True}
OTHER_MODEL = "already holds a model .* neither recipe.json nor a checkpoint tells"
NO_HASHES = r"checkpoint-2 is damaged \(sha256.json is missing\). Restore it, choose"
SAME_FOLDER = "must be another folder than the one of a model that is read, but"
FROM_RUN = {"init_from": "run", **OVERWRITTEN}
FROM_CHECKPOINT = {"init_from": "run/checkpoint-4", **OVERWRITTEN}
# Content of the folder, changes of the recipe, and words of the refusal.
REFUSALS = {
    "another model": (other_model, {}, OTHER_MODEL),
    "no checkpoints": (no_checkpoints, {"max_steps": 9}, "its checkpoints have been deleted"),
    "a checkpoint of others": (checkpoint_of_others, {}, "checkpoint-4 is none. Move it"),
    "damaged checkpoints": (checkpoints_without_hashes, {}, NO_HASHES),
    "the model to start from": (any_run, FROM_RUN, SAME_FOLDER),
    "a checkpoint to start from": (any_run, FROM_CHECKPOINT, SAME_FOLDER),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_train_refuses_a_folder_that_it_cannot_use(monkeypatch, case):
    prepare, changes, words = REFUSALS[case]
    prepare(monkeypatch, Path("run"))
    before = contents(Path("run"))
    with pytest.raises(UserError, match=words):
        run(Path("run"), **changes)
    assert contents(Path("run")) == before


def test_train_with_overwrite_restarts_a_damaged_run(monkeypatch, finished):
    checkpoints_without_hashes(monkeypatch, Path("run"))
    assert_same_run(finished, run(Path("run"), overwrite_output_dir=True))


def swap_lines(name, first, last):
    """Replace a line of a file by another one."""
    lines = Path(name).read_text().splitlines()
    lines[first] = lines[last]
    Path(name).write_text("\n".join(lines) + "\n")


CHANGED = [(("train.a", 0, 1), "training text")]
CHANGED.append((("validation.a", -1, 0), "validation text"))


@pytest.mark.parametrize(("line", "name"), CHANGED)
def test_train_refuses_to_resume_with_changed_text(monkeypatch, line, name):
    folder = run_until_killed(monkeypatch)
    swap_lines(*line)
    with pytest.raises(UserError, match=f"these have changed: {name}. Restore"):
        run(folder)
    assert entries(run(folder, allow_changed_data=True))[-1]["step"] == 4


def test_train_refuses_to_resume_with_changed_tokenizer(monkeypatch, tiny_tokenizer):
    tiny_tokenizer.save_pretrained("tokenizer")
    options = {"vocab_size": None, "tokenizer": "tokenizer"}
    folder = run_until_killed(monkeypatch, **options)
    path = Path("tokenizer/tokenizer.json")
    path.write_text(path.read_text().replace('"prepend": " "', '"prepend": "_"'))
    with pytest.raises(UserError, match="these have changed: tokenizer"):
        run(folder, **options)


BY_COMMAND = "one that this command wrote, but .* has"
OTHERS = [
    (
        "checkpoint-500/model.safetensors",
        "one of this package, but .*checkpoint-500 is none. Move it, choose",
    ),
    ("best-7/config.json", f"{BY_COMMAND} best-7. Choose"),
    ("ema/notes", f"{BY_COMMAND} ema. Choose"),
    ("model-00001-of-00002.safetensors", f"{BY_COMMAND} model-00001-of-00002"),
    ("config.json", f"{BY_COMMAND} config.json"),
]


@pytest.mark.parametrize(("name", "message"), OTHERS)
def test_train_leaves_files_of_others(name, message):
    path = Path("run", name)
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UserError, match=message):
        run(Path("run"))
    assert path.read_text() == "mine" and len([*Path("run").rglob("[a-z]*")]) <= 2


def test_train_uses_a_folder_with_other_folders_and_hidden_files():
    Path("run", "corpus").mkdir(parents=True)
    Path("run", ".gitkeep").touch()
    assert run(Path("run"))


EMPTY = [[], rare(["sha256.json"]), rare(["training_state.json", "model.safetensors"])]


@pytest.mark.parametrize("files", EMPTY)
def test_train_resumes_before_an_empty_checkpoint(monkeypatch, caplog, finished, files):
    empty = run_until_killed(monkeypatch) / "checkpoint-3"
    empty.mkdir()
    for name in files:
        (empty / name).touch()
    assert_same_run(finished, run(Path("run")))
    assert "checkpoint-3 is damaged (sha256.json is" in caplog.text


def test_train_names_damage_only_if_the_mean_needs_it(monkeypatch, caplog):
    options = {"save_steps": 1, "max_steps": 5}
    options |= {"average_checkpoints": 2, "keep_last": 4}
    folder = run_until_killed(monkeypatch, 4, **options)
    damage_file(folder / "checkpoint-3" / "model.safetensors", "a flipped bit")
    run(folder, **options)
    assert "is damaged" not in caplog.text
    damage_file(folder / "checkpoint-4" / "model.safetensors", "a flipped bit")
    damage_file(folder / "model.safetensors", "a flipped bit")
    message = r"checkpoint-4 is damaged \(model.safetensors is damaged\), and its weights"
    with pytest.raises(UserError, match=message):
        run(folder, **options)


def test_train_resumes_in_a_folder_that_has_only_the_checkpoint(monkeypatch):
    shutil.copytree(run_until_killed(monkeypatch) / "checkpoint-2", "copy/checkpoint-2")
    assert list_checkpoints(run(Path("copy")))[-1].name == "checkpoint-4"
