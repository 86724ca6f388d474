"""A corpus that is prepared in shards is the one of one machine, however many tasks work on it."""

import inspect
import json
import os
import pickle
import random
import re
import shlex
import signal
import sys

import datatrove.executor
import numpy as np
import pytest
from datatrove.executor import SlurmPipelineExecutor

from tests.docs_pages import ROOT, blocks
from tests.tiny_runs import to_words
from vanilla_transformer.cli import main
from vanilla_transformer.data.cleaning import KEPT
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.prepared_corpus import MANIFEST_FILE, open_shards, read_manifest
from vanilla_transformer.data.tokenizer_training import hash_tokenizer, load_or_train_tokenizer
from vanilla_transformer.errors import LostProcessError, UserError
from vanilla_transformer.extensions.preparation import preparation, steps
from vanilla_transformer.extensions.preparation.preparation import plan_preparation, prepare
from vanilla_transformer.training.recipe import parse_recipe

WORDS = ["one", "two", "three", "four", "five", "Anna", "Berlin"]
SHARD_PAIRS = 10
RECIPE = """
corpora:
  - {file: a.tsv, target_language: de}
  - {file: empty.tsv, target_language: de}
  - {file: swapped.tsv, target_language: de}
  - {file: b.tsv, target_language: fr, drop: [empty, near_duplicates, other_scripts]}
source_language: en
drop: [empty, markup, identical, duplicates, near_duplicates, repeated_sources]
max_character_ratio: 1.5
max_length: 14
vocab_size: 270
vocabulary_sentences: 30
validation_source: validation.en
validation_target: validation.de
max_tokens: 500
output_dir: out
"""


def draw_line(draw):
    """Return a pair of few words, of which some repeat others, and some break rules."""
    source = " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))
    target = draw.choice([source.upper(), source.title(), f"{source}!", f"{source} {source}"])
    target = draw.choice([target, target, target, target, "", f"<b>{target}</b>"])
    return f"{source}\t{target}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a recipe and its text, and what one process prepares of it as `one`."""
    folder, draw = tmp_path_factory.mktemp("prepare"), random.Random(0)
    (folder / "empty.tsv").write_text("A text.\t\n" * 3)
    german = "Der Hund schläft auf dem alten roten Sofa in unserem Haus."
    (folder / "swapped.tsv").write_text(f"{german}\tThe dog sleeps on the old red sofa in here.\n")
    for name in ("a.tsv", "b.tsv"):
        lines = [draw_line(draw) for _ in range(2 * SHARD_PAIRS - 3)]
        unusual = [*map(str.upper, lines[:9])]
        others = ["one two\tодин два\n", lines[2]]
        (folder / name).write_text("".join(unusual + lines + others))
    (folder / "validation.en").write_text("one two\nfive\n")
    (folder / "validation.de").write_text("ONE TWO\nsix\n")
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(parse_recipe(["recipe.yaml"]), "one", SHARD_PAIRS)
    return folder


@pytest.fixture
def recipe(folder, monkeypatch, tmp_path):
    """Enter the folder of the recipe, and return it."""
    monkeypatch.chdir(folder)
    return parse_recipe(["recipe.yaml", "--cache_dir", str(tmp_path / "cache")])


def files_of(folder):
    """Return the content of all files of a folder by their path."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_shards_are_the_corpus_of_one_machine(folder, recipe):
    texts = load_texts(recipe.data)
    tokenizer = load_or_train_tokenizer(texts)
    corpus = tokenize(texts, tokenizer, seed=0)
    pairs = corpus.epoch(0)
    expected = texts.training.dataset.select(pairs.rows)
    manifest = read_manifest("one")
    shards = open_shards("one", manifest.shards)
    assert shards.select_columns(["source", "target", "corpus"])[:] == expected[:]
    encoded = zip(shards["input_ids"], shards["labels"], strict=True)
    assert [*map(tuple, pairs)] == [*encoded]
    assert manifest.pairs == len(pairs) and len(manifest.shards) > 3
    assert manifest.tokenizer == hash_tokenizer(tokenizer)
    assert json.loads((folder / "one/report.json").read_text()) == corpus.to_dict()
    dropped = {"empty", "markup", "duplicates", "near_duplicates", "repeated_sources"}
    dropped |= {"max_character_ratio", "other_scripts", "max_length"}
    assert corpus.report.dropped.keys() >= dropped
    (warning,) = corpus.report.warnings
    assert warning.startswith("The corpus swapped.tsv has its sides swapped")
    names = {"manifest.json", "report.json", "tokenizer", "shards"}
    assert {path.name for path in (folder / "one").iterdir()} == names


def die_once(preparation, number, folder, rule_name):
    """Kill the task of a range, once, and find repetitions otherwise."""
    mark = preparation.folder.with_name("killed")
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    MATCH(preparation, number, folder, rule_name)


MATCH = steps._match


def test_tasks_of_which_one_is_killed_make_the_same_files(folder, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "_START_METHOD", "fork")  # which imports nothing again
    monkeypatch.setattr(steps, "_match", die_once)
    output = tmp_path / "four"
    with pytest.raises(LostProcessError, match="A task was killed. Repeat the command"):
        prepare(recipe, output, SHARD_PAIRS, tasks=4)
    assert [path.name for path in output.iterdir()] == ["work"]
    marks = output / "work/logs/4/group-duplicates/completions"
    assert len([*marks.iterdir()]) == 4
    assert len([*output.glob("work/read/[0-9]*")]) == 3 + 1 + 1 + 3  # pieces of the files
    monkeypatch.setattr(steps, "_read", None)  # which is done
    prepare(recipe, output, SHARD_PAIRS, tasks=4)
    assert files_of(output) == files_of(folder / "one")


def test_a_run_that_was_killed_at_its_end_is_continued(folder, recipe, tmp_path, monkeypatch):
    write_manifest, output = steps.write_manifest, tmp_path / "out"

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "write_manifest", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, output, SHARD_PAIRS)
    assert not (output / MANIFEST_FILE).exists()
    monkeypatch.setattr(steps, "write_manifest", write_manifest)
    monkeypatch.setattr(steps, "_read", None)  # which is done
    message = "Recipe and text must be as when .*out was begun, but they are not"
    with pytest.raises(UserError, match=message):
        prepare(recipe, output, SHARD_PAIRS + 1)
    prepare(recipe, output, SHARD_PAIRS)
    assert files_of(output) == files_of(folder / "one")
    with pytest.raises(UserError, match="must be a new or an empty folder"):
        prepare(recipe, output, SHARD_PAIRS)


@pytest.mark.parametrize(("sampled_pairs", "kept"), [(6, [2, 3, 4, 5]), (3, [0, 1])])
def test_usual_lengths_are_of_the_first_pairs_of_all_shards(
    sampled_pairs, kept, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(steps, "SAMPLED_PAIRS", sampled_pairs)
    source, long_target = "a" * 30, "b" * 90  # of two pairs; four have sides of equal length
    (tmp_path / "a").write_text(f"{source}\n" * 6)
    (tmp_path / "b").write_text(f"{long_target}\n" * 2 + f"{source}\n" * 4)
    words = ["--train_source", "a", "--train_target", "b", "--output_dir", "out"]
    recipe = parse_recipe([*words, "--max_character_ratio", "1.5"])
    first_steps = plan_preparation(recipe, "prepared", shard_pairs=2)[:3]
    for step in first_steps:
        step()
    preparation = first_steps[0].preparation
    rules = [preparation.find_broken(shard, []) for shard in range(3)]
    assert [*np.flatnonzero(np.concatenate(rules) == KEPT)] == kept


def test_a_file_that_changed_since_it_was_split_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.tsv"
    path.write_text("one\tONE\n" * 25)
    flags = ["--train_source", "a.tsv", "--output_dir", "unused"]
    split, read, *_ = plan_preparation(parse_recipe(flags), "out", SHARD_PAIRS)
    split()
    path.write_text("two\tTWO!\n" * 25)
    with pytest.raises(UserError, match="a.tsv must not change while it is read, but it did"):
        read(None, 1, 3)
    assert not [*tmp_path.glob("out/work/read/*")]


def test_held_out_text_is_read_before_the_work(recipe, tmp_path):
    flags = ["--validation_source", "none", "--validation_target", "none"]
    with pytest.raises(UserError, match="There is no file none"):
        prepare(parse_recipe(["recipe.yaml", *flags]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_several_tasks_need_the_extra(recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datatrove", None)
    message = r"`prepare` with several tasks needs packages .*'vanilla-transformer\[prepare\]'"
    with pytest.raises(UserError, match=message):
        prepare(recipe, tmp_path / "out", SHARD_PAIRS, tasks=2)


def test_prepare_loads_a_tokenizer_and_prints_counts(folder, recipe, tmp_path, capsys):
    output = tmp_path / "out"
    keys = {"train_source": "a.tsv", "tokenizer": "one/tokenizer", "drop": "empty"}
    keys |= {"source_language": "en", "target_language": "de"}
    flags = [f"--{name}={value}" for name, value in keys.items()]
    assert main(["prepare", *flags, "--output", str(output)]) == 0
    manifest, shown = read_manifest(output), capsys.readouterr().out
    assert manifest.recipe == keys | {"drop": ["empty"]}
    assert shown.startswith(f"{manifest.pairs} pairs in 1 shards are in {output}.\n")


def test_prepare_leaves_the_mix_to_training(folder, monkeypatch):
    monkeypatch.chdir(folder)
    corpora = [{"file": "a.tsv", "weight": 2.5}, {"file": "b.tsv"}]
    stages = "[{corpora: {a.tsv: 1}, until_step: 5}, {corpora: {b.tsv: 1}}]"
    keys = {"output_dir": "out", "drop": "empty", "tokenizer": "one/tokenizer"}
    keys |= {"source_language": "en", "target_language": "de"}
    shares = {"of weights": {}, "of stages": {"stages": stages, "max_steps": 9}}
    for name, mix in shares.items():
        if mix:
            del corpora[0]["weight"]
        flags = keys | {"corpora": json.dumps(corpora)} | mix
        recipe = parse_recipe(to_words(flags))
        manifest = prepare(recipe, name, SHARD_PAIRS)
        assert manifest.recipe["corpora"] == corpora and "stages" not in manifest.recipe
        first, *_, last = manifest.shards
        assert (first.corpus, last.corpus) == (0, 1)
        texts = load_texts(DataArguments(train_data=name))
        assert texts.specs[0].weight == corpora[0].get("weight", 1)


def test_parts_and_shards_are_in_the_order_of_their_numbers(tmp_path):
    plan = steps.Preparation(tmp_path, {"train_source": "a.tsv"}, None, SHARD_PAIRS)
    numbers = [7, 99_999, 100_000, 123_456]
    for number in numbers:
        part = plan.work / "read" / f"{number:05d}"
        part.mkdir(parents=True)
        for shard in numbers:
            (part / f"00000-{shard:05d}.arrow").touch()
    names = [f"{number:05d}" for number in numbers]
    assert [part.name for part in plan.parts("read")] == names
    shards = plan.shards("00000")
    assert shards == plan.shards() and len(shards) == 16
    assert [shard.stem for shard in shards[4:8]] == [f"00000-{name}" for name in names]
    assert shards[4].parent.name == "99999"


def test_a_mistake_in_a_task_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(preparation, "_START_METHOD", "fork")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tA\n")
    (tmp_path / "b.tsv").write_bytes(b"\xff\tB\n")
    corpora = "[{file: a.tsv}, {file: b.tsv}]"
    assert main(["prepare", "--corpora", corpora, "--tasks", "2", "--output", "out"]) == 2
    *_, line = lines = capfd.readouterr().err.splitlines()
    assert len(lines) <= 2 and line.startswith("error: b.tsv must be UTF-8, but line 1 has")


def test_training_reads_the_shards(recipe):
    texts = load_texts(DataArguments(train_data="one"))
    corpus = tokenize(texts, load_or_train_tokenizer(texts), seed=0)
    assert len(corpus.epoch(0)) == read_manifest("one").pairs
    assert corpus.overlaps["validation"].pairs == 2


FILE = "--train_source a.tsv"
MISTAKES = {
    f"{FILE} --drop misaligned": "got `misaligned`. Leave it out; clean-corpus drops such pairs",
    f"{FILE} --augment '{{typos: 0.1}}'": "got `augment`. Leave",
    f"{FILE} --score '{{quality: a, keep: 0.5}}'": "got `score`. Leave",
    f"{FILE} --train_alignments agreement": "got `train_alignments`. Leave",
    f"{FILE} --drop identical": "Cleaning must leave some pairs",
    f"{FILE} --bpe_dropout 0.1 --augment '{{typos: 0.1}}'": "got `augment` and `bpe_dropout`",
}


@pytest.mark.parametrize("flags", MISTAKES)
def test_prepare_refuses_what_needs_the_whole_text(flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\ta\n")
    assert main(["prepare", *shlex.split(flags), "--output", "out"]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and re.search(re.escape(MISTAKES[flags]), line)


class Cluster:
    """Stand for an executor on a cluster: run the tasks of a step after the ones before it."""

    def __init__(self, pipeline, tasks, depends, **options):
        self.steps, self.tasks, self.depends = pipeline, tasks, depends
        assert inspect.signature(SlurmPipelineExecutor).bind(pipeline, tasks=tasks, **options)

    def run(self):
        if self.depends is not None:
            self.depends.run()
        for rank in reversed(range(self.tasks)):
            for step in pickle.loads(pickle.dumps(self.steps)):
                step(None, rank, self.tasks)


def test_the_steps_on_the_page_run_on_a_cluster(folder, recipe, monkeypatch, tmp_path):
    monkeypatch.setattr(datatrove.executor, "SlurmPipelineExecutor", Cluster)
    (code,) = blocks(ROOT / "docs" / "scale_out.md", "python")
    code = code.replace('"data/prepared"', f"{str(tmp_path / 'out')!r}, {SHARD_PAIRS}")
    exec(code.replace("tasks=64", "tasks=3"), {})
    written = files_of(tmp_path / "out")
    assert files_of(folder / "one").items() <= written.items()
