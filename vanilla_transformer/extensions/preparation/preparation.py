"""Prepare a corpus on this machine: plan its steps, and run them in this process or by tasks of
datatrove.
"""

import json
import logging
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import datasets

from vanilla_transformer.data.data_arguments import (
    OF_MIX,
    DataArguments,
    cleaning_rules,
    corpus_specs,
)
from vanilla_transformer.data.prepare_data import load_held_out
from vanilla_transformer.data.prepared_corpus import Manifest, read_manifest
from vanilla_transformer.data.readers import open_corpus
from vanilla_transformer.errors import LostProcessError, UserError, UserFileError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.outputs import check_output_dir_is_empty, lock_folder
from vanilla_transformer.machine.cores import usable_cores
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.training.recipe import Recipe
from vanilla_transformer.training.run_arguments import BATCH_SIZES, KEEP
from vanilla_transformer.user_input.user_modules import starting_processes

from .steps import Preparation, Step, steps_of

logger = logging.getLogger(__name__)

SHARD_PAIRS = 200_000
# Keys that change nothing in a prepared corpus
_OF_TRAINING = {*BATCH_SIZES, *OF_MIX, "cache_dir"}
# Keys of training that shards cannot have
_OF_WHOLE_TEXT = ("augment", "bpe_dropout", "train_alignments")
_START_METHOD = "forkserver"  # of processes, whose imports it shares


def prepare(
    recipe: Recipe, folder: str | Path, shard_pairs: int = SHARD_PAIRS, tasks: int = 1
) -> Manifest:
    """
    Clean and tokenize the training text of a recipe in shards, as `train_data` reads them. Any
    number of tasks makes the same files, and a call that was killed is continued by the next one.

    Args:
        shard_pairs: Pairs of a shard before cleaning.
        tasks: Parts of each step, of which as many run at a time as there are cores. More than one
            need datatrove.
    """
    steps = plan_preparation(recipe, folder, shard_pairs)
    work = steps[0].preparation.work
    with lock_folder(work):
        if tasks > 1:
            _run_tasks(steps, tasks, work / "logs" / str(tasks))
        else:
            for step in steps:
                logger.info("Step %s", step.name)
                step()
    shutil.rmtree(work)
    return read_manifest(folder)


def plan_preparation(
    recipe: Recipe, folder: str | Path, shard_pairs: int = SHARD_PAIRS
) -> list[Step]:
    """Write the plan of a preparation into a folder, and return its steps, for executors of
    datatrove. The folder may have the same plan, and the parts that it has made before.
    """
    data, tuning = recipe.data, recipe.fine_tuning
    specs, rules = corpus_specs(data), cleaning_rules(data)
    is_wanted = dict.fromkeys(("misaligned", "score"), False)
    for corpus_rules in rules:
        is_wanted["misaligned"] |= "misaligned" in corpus_rules.drop
        is_wanted["score"] |= corpus_rules.score is not None
    is_tuned = tuning.init_from is not None
    is_wanted["init_vocabulary"] = is_tuned and tuning.init_vocabulary != KEEP
    for name in _OF_WHOLE_TEXT:
        is_wanted[name] = getattr(data, name) != DataArguments.model_fields[name].default
    wrong = [f"`{name}`" for name, wanted in is_wanted.items() if wanted]
    if wrong:
        raise UserError(
            "`prepare` must do without what needs the whole text at once, got "
            f"{' and '.join(wrong)}. Leave it out; clean-corpus drops such pairs before."
        )
    load_held_out(data)  # or a mistake in it would end the last step, hours later
    versions = []
    for spec in specs:
        with open_corpus(spec) as corpus:
            versions.append(corpus.versions)
    folder = Path(folder)
    values = data.model_dump(exclude_defaults=True, exclude=_OF_TRAINING)
    tokenizer = tuning.init_from or data.tokenizer
    preparation = Preparation(folder, values, tokenizer, shard_pairs)
    plan = json.dumps([values, tokenizer, shard_pairs, versions])
    path = preparation.work / "plan.json"
    if not path.exists():
        check_output_dir_is_empty(folder)
        write_text_atomically(path, plan)
    elif path.read_text(encoding="utf-8") != plan:
        raise UserFileError(
            f"Recipe and text must be as when {folder} was begun, but they are not. Restore them, "
            "delete it, or choose another folder."
        )
    return steps_of(preparation)


def _run_tasks(steps: Sequence[Step], tasks: int, logs: Path) -> None:
    """Run steps on shards by tasks of datatrove, and the others in this process.

    The pool of processes is not the one of datatrove, which waits forever for a task that was
    killed.
    """
    with requires_extra("prepare", "`prepare` with several tasks"):
        import datatrove.executor  # noqa: F401
    from vanilla_transformer.extensions.scale_out.engine_workers import start_worker

    context = get_context(_START_METHOD)
    context.set_forkserver_preload([__name__, start_worker.__module__])
    reader, lifeline = context.Pipe(duplex=False)
    workers = min(tasks, usable_cores())
    with ProcessPoolExecutor(workers, context, start_worker, (reader, 1)) as pool:
        try:
            for step in steps:
                logger.info("Step %s", step.name)
                if step.unit == "text":
                    step()
                    continue
                with starting_processes():
                    run = partial(_run_task, step, tasks, logs)
                    results = pool.map(run, range(tasks))
                list(results)
        except BaseException as error:
            lifeline.close()  # or the pool would wait for its other tasks
            if isinstance(error, BrokenProcessPool):
                raise LostProcessError(
                    "A task was killed. Repeat the command, which keeps finished parts; if memory "
                    f"is short, with fewer than {workers} tasks or with smaller shards."
                ) from error
            raise


def _run_task(step: Step, tasks: int, logs: Path, rank: int) -> None:
    """Run a task as an executor of datatrove does, which keeps a mark of each one that is done."""
    from datatrove.executor import LocalPipelineExecutor
    from loguru import logger as log_of_tasks

    datasets.disable_progress_bars()
    log_of_tasks.disable("datatrove")  # it would print the traceback of a user's mistake
    executor = LocalPipelineExecutor([step], tasks, workers=1, logging_dir=str(logs / step.name))
    executor._run_for_rank(rank)
