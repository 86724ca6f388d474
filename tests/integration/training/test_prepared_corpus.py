"""Training from a prepared corpus: as from the text itself where a window has all shards, and
resumed bit for bit in any window, in one process and in two.
"""

import hashlib
import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoTokenizer

from tests.launchers import run_two_processes
from tests.prepared_corpora import prepare_texts
from tests.tiny import write_tiny_corpus
from tests.tiny_runs import (
    assert_equal_tensors,
    assert_same_run,
    entries,
    flags,
    kill_at_step,
    no_scores,
    to_words,
    train_tiny,
    trainer_tensors,
    training_state,
)
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.data_arguments import stages
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.prepared_corpus import MANIFEST_FILE, REPORT_FILE
from vanilla_transformer.data.readers import read_text_files
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.training.checkpoint import list_checkpoints
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

RUN = {"max_steps": 9, "save_steps": 1, "eval_steps": 9, "dropout": 0.3, "ema_decay": 0.9}
SHARDS = 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def from_text(corpus):
    return train_tiny(corpus, corpus / "from_text", **RUN)


@pytest.fixture(scope="module")
def prepared(corpus, from_text):
    pairs = list(read_text_files(corpus / "train.a", corpus / "train.b"))
    tokenizer = AutoTokenizer.from_pretrained(from_text)
    prepare_texts(corpus / "prepared", pairs, tokenizer, SHARDS)
    return corpus / "prepared"


def recipe_of(prepared, output, **changes):
    """Return the recipe of a run from a prepared corpus."""
    changes = {"train_source": None, "train_target": None, "vocab_size": None} | changes
    changes |= {"train_data": prepared}
    return parse_recipe(flags(prepared.parent, output, **RUN | changes))


def test_train_from_one_window_equals_training_from_the_text(prepared, from_text, tmp_path):
    recipe = recipe_of(prepared, tmp_path / "run", window_shards=SHARDS)
    run = train(recipe, evaluate=no_scores)
    assert_same_run(from_text, run)
    for name in ("config.json", "tokenizer.json"):
        assert (run / name).read_text() == (from_text / name).read_text()
    report = json.loads((prepared / REPORT_FILE).read_text())
    assert json.loads((run / "corpus.json").read_text()) == report
    assert report["cleaning"]["kept"] == 40


def test_train_killed_in_the_third_window_resumes(prepared, tmp_path, monkeypatch):
    changes = {"window_shards": 1, "verify_data": True}
    straight = train(recipe_of(prepared, tmp_path / "straight", **changes), evaluate=no_scores)
    recipe = recipe_of(prepared, tmp_path / "killed", **changes)
    kill_at_step(recipe, monkeypatch, 6)
    checkpoint = list_checkpoints(tmp_path / "killed")[-1]
    position = training_state(checkpoint)["progress"]["batch_sampler"]
    assert (position["epoch"], position["window"]) == (0, 2)
    resumed = train(recipe, evaluate=no_scores)
    assert_same_run(straight, resumed)
    assert [entry["step"] for entry in entries(resumed) if "loss" in entry][-1] == 9
    path = prepared / MANIFEST_FILE
    content = path.read_text()
    path.write_text(content.replace("train.a", "other.a"))
    try:
        with pytest.raises(UserError, match="these have changed: training text"):
            train(recipe_of(prepared, tmp_path / "killed", max_steps=12, **changes))
    finally:
        path.write_text(content)


# Steps after which a run is killed: the first one is within the third window.
KILLED, LAST = 5, 7
IN_TWO = {"window_shards": 1, "max_tokens": 20, "max_steps": 9, "keep_last": LAST}


def train_until_killed(recipe, step):
    """Train until `step` steps are made, and return the pairs of each step in this process."""
    steps, take_step = [], TokenBudgetBatchSampler.take_step

    def note(sampler):
        batches = take_step(sampler)
        steps.append([batch.pairs.tolist() for batch in batches])
        return batches

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenBudgetBatchSampler, "take_step", note)
        kill_at_step(recipe, patch, step)
    return steps


def train_in_two(rank, folder, results):
    """Train a process of two without an interruption, and again with one in the third window."""
    hashed, file_digest = [], hashlib.file_digest

    def note(file, name):
        hashed.append(Path(file.name).name)
        return file_digest(file, name)

    def recipe_in(name):
        # Each process has another cache, as on machines that share the corpus alone.
        changes = IN_TWO | {"verify_data": True, "cache_dir": f"{folder}/cache-{rank}"}
        return recipe_of(Path(folder, "prepared"), Path(folder, name), **changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "file_digest", note)
        results[f"steps {rank}"] = train_until_killed(recipe_in("straight"), LAST)
        results[f"hashed {rank}"] = {name for name in hashed if name.endswith(".arrow")}
    train_until_killed(recipe_in("killed"), KILLED)
    results[f"resumed {rank}"] = train_until_killed(recipe_in("killed"), LAST)
    hashed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "file_digest", note)
        train(recipe_in("killed"), evaluate=no_scores)
        results[f"averaged {rank}"] = hashed.count("model.safetensors")


@pytest.fixture(scope="module")
def in_two(prepared):
    """Return what two processes have seen, by its name and the process."""
    return run_two_processes(train_in_two, prepared.parent)


def test_two_processes_train_on_the_batches_of_one(prepared, in_two, tmp_path):
    changes = IN_TWO | {"gradient_accumulation_steps": 2}
    steps = train_until_killed(recipe_of(prepared, tmp_path / "one", **changes), LAST)
    shares = zip(in_two["steps 0"], in_two["steps 1"], strict=True)
    assert [[*first, *second] for first, second in shares] == steps
    assert len(in_two["hashed 0"]) == SHARDS and not in_two["hashed 1"]


def test_two_processes_killed_in_the_third_window_resume(prepared, in_two):
    straight, killed = prepared.parent / "straight", prepared.parent / "killed"
    checkpoints = [run / f"checkpoint-{LAST}" for run in (straight, killed)]
    assert list_checkpoints(straight)[-1] == checkpoints[0]
    position = training_state(killed / f"checkpoint-{KILLED}")["progress"]["batch_sampler"]
    assert (position["epoch"], position["window"]) == (0, 2)
    (part,) = position["parts"]
    assert part[1] > 0  # its steps done
    assert_equal_tensors(*map(trainer_tensors, checkpoints))
    weights = [load_file(path / "model.safetensors") for path in checkpoints]
    assert_equal_tensors(*weights)
    for rank in (0, 1):
        assert in_two[f"resumed {rank}"] == in_two[f"steps {rank}"][KILLED:]


def test_one_process_of_two_looks_for_damaged_checkpoints(prepared, in_two):
    averaged = len(list_checkpoints(prepared.parent / "killed"))
    assert averaged > 1
    assert in_two["averaged 0"] >= averaged and in_two["averaged 1"] == 0


def test_dry_run_counts_the_pairs_of_all_windows(prepared, tmp_path):
    recipe = recipe_of(prepared, tmp_path / "run", window_shards=1, max_steps=None)
    plan = plan_run(recipe, timed_steps=1)
    assert plan["pairs_per_epoch"] == 40
    one_window = recipe_of(prepared, tmp_path / "run", window_shards=SHARDS, max_steps=None)
    steps = plan_run(one_window, timed_steps=1)["steps_per_epoch"]
    assert abs(plan["steps_per_epoch"] - steps) <= SHARDS


REFUSED = {
    "corpora": [{"file": "a.tsv"}],
    "train_source": "a.en",
    "tokenizer": "folder",
    "vocab_size": 100,
    "drop": ["duplicates"],
    "augment": {"typos": 0.1},
    "test_source": "a.en",
}


@pytest.mark.parametrize("key", REFUSED)
def test_recipe_refuses_keys_that_belong_to_preparation(prepared, tmp_path, key):
    words = {"train_data": prepared, "output_dir": tmp_path / "run", key: REFUSED[key]}
    with pytest.raises(UserError, match=f"`{key}` must be left out with `train_data`"):
        parse_recipe(to_words(words))


@pytest.mark.parametrize("flag", [{"window_shards": 2}, {"verify_data": True}])
def test_recipe_refuses_keys_of_a_prepared_corpus_without_one(corpus, tmp_path, flag):
    (name,) = flag
    with pytest.raises(UserError, match=f"`{name}` must be left out, .* no `train_data`"):
        parse_recipe(flags(corpus, tmp_path, **flag))


def test_train_refuses_a_prepared_corpus_of_another_tokenizer(prepared, tmp_path):
    path = prepared / MANIFEST_FILE
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "prepared"
    other.mkdir()
    for source in (prepared / "shards", prepared / "tokenizer", prepared / REPORT_FILE):
        (other / source.name).symlink_to(source)
    content = json.loads(path.read_text()) | {"tokenizer": "another"}
    (other / MANIFEST_FILE).write_text(json.dumps(content))
    for name in ("validation.a", "validation.b"):
        (tmp_path / "other" / name).symlink_to(prepared.parent / name)
    with pytest.raises(UserError, match="The tokenizer of the model must be the one of"):
        train(recipe_of(other, tmp_path / "run"), evaluate=no_scores)
    shard = prepared / "shards" / "00003.arrow"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    try:
        with pytest.raises(UserError, match="00003.arrow is missing or damaged"):
            train(recipe_of(prepared, tmp_path / "run", verify_data=True), evaluate=no_scores)
    finally:
        shard.write_bytes(whole)


MIX = [{"file": "a.tsv"}, {"file": "b.tsv", "weight": 3.0}]
OTHER_WEIGHTS = [{"file": "a.tsv", "weight": 0.5}, {"file": "b.tsv"}]


@pytest.fixture
def mixed(prepared, tmp_path):
    """Return a prepared corpus of a mix, whose second corpus has a shard of the four."""
    pairs = list(read_text_files(prepared.parent / "train.a", prepared.parent / "train.b"))
    tokenizer = AutoTokenizer.from_pretrained(prepared / "tokenizer")
    keys = {"vocab_size": 270, "drop": ["duplicates"], "train_source": None, "train_target": None}
    options = {"corpora_of": [0, 0, 0, 1], "corpora": MIX}
    folder = tmp_path / "mixed"
    prepare_texts(folder, pairs, tokenizer, SHARDS, **keys, **options)
    for name in ("validation.a", "validation.b"):
        (tmp_path / name).symlink_to(prepared.parent / name)
    return folder


def test_a_recipe_may_repeat_the_keys_of_its_prepared_corpus(mixed):
    keys = {"vocab_size": 270, "drop": "[duplicates]", "corpora": MIX}
    recipe = recipe_of(mixed, mixed.parent / "run", **keys)
    assert recipe.data.vocab_size == 270
    with pytest.raises(UserError, match="`vocab_size` must be left out with `train_data`"):
        recipe_of(mixed, mixed.parent / "run", vocab_size=280)
    with pytest.raises(UserError, match="`corpora` must be left out with `train_data`"):
        recipe_of(mixed, mixed.parent / "run", corpora=MIX[::-1])


def stages_of(*shares):
    """Return stages with these shares of corpora, each of four steps but the last."""
    stages = []
    for number, corpora in enumerate(shares, start=1):
        stages.append({"corpora": corpora, "until_step": 4 * number})
    del stages[-1]["until_step"]
    return stages


WEIGHTS = {
    "of the manifest": ({}, 30 + 3 * 10),
    "of the recipe": ({"corpora": OTHER_WEIGHTS}, 15 + 10),
    "of a temperature": ({"sampling_temperature": 5.0}, 60),  # there is one direction
    "of one stage": ({"stages": stages_of({"a.tsv": 1, "b.tsv": 1})}, 40),
    "of stages": ({"stages": stages_of({"a.tsv": 1}, {"b.tsv": 1})}, 30),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_training_weighs_a_prepared_mix(mixed, name):
    changes, pairs = WEIGHTS[name]
    recipe = recipe_of(mixed, mixed.parent / "run", window_shards=1, **changes)
    texts = load_texts(recipe.data)
    tokenizer = load_or_train_tokenizer(texts)
    corpus = tokenize(texts, tokenizer, seed=0, stages=stages(recipe.data, 9))
    assert len(corpus.epoch(0)) == pairs


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ([{"corpora": {"c.tsv": 1}}], "Stage 1 of `stages`: .*'c.tsv'"),
        ([{"corpora": {"a.tsv": 1}, "until_step": 4}], "The last one lasts until the run ends"),
    ],
)
def test_recipe_refuses_stages_that_a_prepared_mix_cannot_have(mixed, section, message):
    with pytest.raises(UserError, match=message):
        recipe_of(mixed, mixed.parent / "run", stages=section)


def test_train_enters_the_second_stage_of_a_prepared_mix(mixed):
    stages = stages_of({"a.tsv": 1}, {"a.tsv": 1, "b.tsv": 2})
    changes = {"window_shards": 1, "stages": stages, "logging_steps": 1}
    run = train(recipe_of(mixed, mixed.parent / "run", **changes), evaluate=no_scores)
    entered = {}
    for entry in entries(run):
        if "stage" in entry:
            entered.setdefault(entry["stage"], entry["step"])
    assert entered == {1: 1, 2: 5}
