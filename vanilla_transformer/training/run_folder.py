"""The folder of a run: its lock, its checkpoints, its best models, its records, and the model that
comes out.
"""

import json
import logging
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from vanilla_transformer.data.corpus import Corpus
from vanilla_transformer.data.data_loader import MicroBatchLoader
from vanilla_transformer.errors import MissingFileError, UserError, UserFileError
from vanilla_transformer.files.atomic import refuse_dangling_link, write_text_atomically
from vanilla_transformer.files.hashes import find_damage
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.files.model_folders import HASHES_FILE, delete_weights, has_weights
from vanilla_transformer.files.outputs import check_output_dir, lock_folder
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.machine.cores import describe_hardware

from .checkpoint import (
    CheckpointWriter,
    checkpoint_folder,
    copy_model,
    delete_folder,
    describe_newest,
    find_latest_checkpoint,
    is_checkpoint,
    list_checkpoints,
    load_progress,
    load_resume_state,
    step_of,
)
from .distributed import (
    broadcast_decision,
    connect_processes,
    is_main_process,
    wait_for_processes,
)
from .metrics import truncate_metrics
from .ranking import rank
from .recipe_checks import check_same_run, has_same_limits
from .run_arguments import Recipe, flatten
from .train_state import TrainState

logger = logging.getLogger(__name__)

_BEST = "best-"
EMA = "ema"  # folder of the moving average
_RECIPE = "recipe"
_MACHINE = "machine.json"
_SECONDS_UNTIL_SHARED = 60.0  # network disks may show new files late
_LIBRARIES = ("torch", "transformers", "accelerate", "tokenizers")


@contextmanager
def lock_output_dir(output_dir: str | Path) -> Iterator[None]:
    """Hold the folder of a run for this process and those that `torchrun` started with it.

    A crash releases it.
    """
    if not is_main_process():  # which holds it for all
        yield
        return
    check_is_writable(output_dir)
    with lock_folder(output_dir):
        yield


def check_is_writable(output_dir: str | Path) -> None:
    """Refuse a folder that a run cannot write, before anything is read."""
    folder = Path(output_dir)
    refuse_dangling_link(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"`output_dir` must be a folder, but {existing} is a file.")
    if not os.access(existing, os.W_OK):
        raise UserFileError(
            f"`output_dir` must be a writable folder, but {existing} is not writable. Choose "
            "another --output_dir."
        )


def refuse_model_inside(name: str | Path | None, output_dir: str | Path) -> None:
    """Refuse a model to read that is in the folder of a run, which may replace it."""
    if (
        name is not None
        and Path(name).exists()
        and Path(name).resolve().is_relative_to(Path(output_dir).resolve())
    ):
        requirement = "`output_dir` must be another folder than the one of a model that is read"
        raise UserError(
            f"{requirement}, but {name} is in {output_dir}. Choose another --output_dir."
        )


class RunFolder:
    """Find, write and delete the files of a run in `output_dir`.

    All processes call the same methods together; the main process writes.

    Attributes:
        checkpoint: The checkpoint that the run resumes from, or None for a new run.
        finished: Whether the folder holds the final model of this very run.
    """

    def __init__(self, recipe: Recipe):
        """Find the run of the same recipe that the folder holds.

        A finished run continues if the recipe has other limits, such as a larger `max_steps`. With
        `overwrite_output_dir` a finished run and a run of another recipe start over; an unfinished
        one resumes.

        The main process decides, and alone hashes what the folder holds. The others take its word
        if they see the same checkpoint.
        """
        self.options = recipe.output
        self.path = Path(recipe.output.output_dir)
        self.checkpoint: Path | None = None
        self.finished = False
        self._temporary_step: int | None = None
        self._saved_step: int | None = None
        self._writer: CheckpointWriter | None = None
        self._last_saved = time.monotonic()
        check_is_writable(self.path)
        refuse_model_inside(recipe.fine_tuning.init_from, self.path)
        connect_processes()
        if is_main_process():
            self._find_run(recipe)
        decision: list[Any] = [self.finished, self.checkpoint, describe_newest(self.path)]
        if torch.distributed.is_initialized():
            torch.distributed.broadcast_object_list(decision)
        self.finished, self.checkpoint, newest = decision
        if (seen := describe_newest(self.path)) != newest:
            raise UserError(
                f"All processes must resume from one checkpoint, but process {os.environ['RANK']} "
                f"sees {seen} as the newest in {self.path}, and process 0 sees {newest}. Start "
                "again when all see the same files, or choose an --output_dir on a shared disk."
            )

    def _find_run(self, recipe: Recipe) -> None:
        """Set `finished` and `checkpoint` by what the folder holds."""
        values, overwrites = flatten(recipe), self.options.overwrite_output_dir
        trained = has_weights(self.path)
        starts_over = trained and overwrites
        damage = None if starts_over else self._find_damage()
        is_whole = trained and not starts_over and damage is None
        self.finished = is_whole and self._has_same_limits(values)
        if not starts_over and not self.finished:
            self.checkpoint = find_latest_checkpoint(self.path)
            try:
                if self.checkpoint is not None:
                    check_same_run(load_progress(self.checkpoint)["recipe"], values)
            except UserError:
                if not overwrites:
                    raise
                self.checkpoint = None
        if damage is not None and self.checkpoint is not None:
            if is_main_process():
                logger.warning(
                    "%s. The model is made again from the checkpoints of the run.", damage
                )
        elif damage is not None and not overwrites:
            hint = (
                "Restore it from a copy, choose another --output_dir, or replace all by "
                "--overwrite_output_dir"
            )
            raise UserError(f"{damage}, and no whole checkpoint can make it again. {hint}.")
        if not overwrites:
            self._refuse_files_of_others()
        if is_whole and not (self.finished or self.checkpoint):
            raise self._cannot_continue("its checkpoints have been deleted")

    def _find_damage(self) -> str | None:
        """Return which file of the final model or of the moving average is damaged, or None.

        A folder without hashes, of an older run or of a user who has deleted them, is whole if it
        can be loaded.
        """
        for folder in (self.path, self.path / EMA):
            if (folder / HASHES_FILE).exists():
                if (damage := find_damage(folder)) is not None:
                    return f"In {folder}, {damage}"
            elif has_weights(folder):
                from vanilla_transformer.decoding.pretrained import load_pretrained, load_tokenizer

                try:
                    load_pretrained(AutoModelForSeq2SeqLM, folder)
                    load_tokenizer(folder)
                except (OSError, UserError) as error:
                    return str(error).rstrip(".")
        return None

    def restore_best_models(self) -> None:
        """Write each damaged best model again, from the checkpoint of the same step."""
        for folder in list_checkpoints(self.path, _BEST):
            damage = find_damage(folder) if (folder / HASHES_FILE).exists() else None
            checkpoint = checkpoint_folder(self.path, step_of(folder))
            if damage is not None and find_damage(checkpoint) is None:
                copy_model(checkpoint, folder)
                logger.warning(
                    "In %s, %s. The model was written again from %s.", folder, damage, checkpoint
                )
            elif damage is not None:
                problem = f"In {folder}, {damage}, and no checkpoint of its step can make it again"
                if self.finished:
                    raise UserError(f"{problem}. Restore it from a copy, or delete the folder.")
                logger.warning("%s.", problem)

    def _has_same_limits(self, recipe: dict[str, Any]) -> bool:
        """Return whether the run that has written the final model had the same limits."""
        try:
            before = dict(read_json(self.path / f"{_RECIPE}.json"))
        except (OSError, ValueError, TypeError):
            checkpoint = find_latest_checkpoint(self.path)
            if checkpoint is None:
                reason = f"neither {_RECIPE}.json nor a checkpoint tells how it was trained"
                raise self._cannot_continue(reason) from None
            before = load_progress(checkpoint)["recipe"]
        check_same_run(before, recipe)
        return has_same_limits(before, recipe)

    def _cannot_continue(self, reason: str) -> UserError:
        return UserError(
            f"{self.path} already holds a model that training cannot continue from: {reason}. "
            "Choose another --output_dir, or replace the model with --overwrite_output_dir."
        )

    def _refuse_files_of_others(self) -> None:
        """Refuse a folder in which this run would delete or replace what no run of this package has
        written.
        """
        checkpoints = list_checkpoints(self.path)
        hint = "choose another --output_dir, or replace all by --overwrite_output_dir."
        for folder in checkpoints:
            if not is_checkpoint(folder):
                raise UserError(
                    f"Each checkpoint must be one of this package, but {folder} is none. Move it, "
                    f"{hint}"
                )
        if self.checkpoint is not None or self.finished:
            return
        if checkpoints:
            requirement = f"The run in {self.path} must resume from a whole checkpoint"
            damage = find_damage(checkpoints[-1])
            raise UserError(
                f"{requirement}, but {checkpoints[-1]} is damaged ({damage}). Restore it, {hint}"
            )
        if not has_weights(self.path):  # or else the caller knows more
            check_output_dir(self.path, own=[_MACHINE], replaced=[f"{_BEST}*", "checkpoint-*", EMA])

    def restore(self, state: TrainState, batches: MicroBatchLoader) -> None:
        """Load the checkpoint into `state` and `batches`, if there is one.

        The model has its weights already.
        """
        if self.checkpoint is None:
            return
        like = state.resume_state()
        saved = load_resume_state(self.checkpoint, like)
        progress = saved.progress
        changed = [
            name
            for name, value in state.progress.data.items()
            if progress["data"].get(name) != value
        ]
        if changed and not self.options.allow_changed_data:
            raise UserError(
                f"The run in {self.path} must resume with the data it began with, but these have "
                f"changed: {', '.join(changed)}. Restore the files, or continue with the new ones "
                "by --allow_changed_data."
            )
        state.load_resume_state(saved, full=saved.optimizer is not like.optimizer)
        batches.load_state_dict(progress["batch_sampler"])
        # Scores of different metrics cannot be compared.
        if progress["recipe"].get("best_metric") != self.options.best_metric:
            state.progress.best = []
            state.progress.validations_without_improvement = 0
        self._temporary_step = progress["step"] if progress["temporary"] else None
        self._saved_step = progress["step"]
        minutes = progress["minutes"]
        before = progress["num_processes"]
        now = state.accelerator.num_processes
        self._log(
            state,
            f"Resuming from step {progress['step']}, after {minutes:.1f} minutes of training.",
        )
        if before != now:
            self._log(
                state,
                f"The run now has {now} processes instead of {before}, and "
                f"{batches.sampler.batches_per_step} batches per step. It continues at the same "
                "place in the data.",
            )

    def start(self, state: TrainState, corpus: Corpus) -> None:
        """Drop everything after the current step, from a crashed or earlier run, and describe
        corpus and machine.
        """
        wait_for_processes(state.accelerator)  # all processes have read what they resume from
        self._writer = CheckpointWriter(
            state.accelerator, state.tokenizer, sharded=state.recipe.optimization.fsdp
        )
        if state.accelerator.is_main_process:
            self.path.mkdir(parents=True, exist_ok=True)
            # First: from now on it is a run's folder.
            machine = {
                "hardware": describe_hardware(
                    state.accelerator.device, state.accelerator.num_processes
                ),
                "processes": state.accelerator.num_processes,
                "mixed_precision": state.accelerator.mixed_precision,
                "versions": {name: version(name) for name in _LIBRARIES},
            }
            write_text_atomically(self.path / _MACHINE, _as_json(machine))
            for leftover in (*self.path.glob(".checkpoint-*"), *self.path.glob(f".{_BEST}*")):
                shutil.rmtree(leftover, ignore_errors=True)
            # The folder must hold no mixture with a run that this one replaces.
            if self.checkpoint is None:
                (self.path / HASHES_FILE).unlink(missing_ok=True)
                delete_weights(self.path)
                shutil.rmtree(self.path / EMA, ignore_errors=True)
            prune_after(self.path, state.step)
            self.restore_best_models()
            truncate_metrics(self.path, state.step)
            self._log(state, str(corpus))
            write_text_atomically(self.path / "corpus.json", _as_json(corpus.to_dict()))
        wait_for_processes(state.accelerator)
        deadline = time.monotonic() + _SECONDS_UNTIL_SHARED
        while not (self.path / _MACHINE).exists():
            if time.monotonic() > deadline:
                raise MissingFileError(
                    "All processes must see the same `output_dir`, but process "
                    f"{state.accelerator.process_index} does not see {self.path / _MACHINE}. "
                    "Choose a folder on a shared disk."
                )
            time.sleep(0.1)

    def checkpoint_due(self, state: TrainState, together: bool) -> bool:
        """Return whether `save_steps` or `save_minutes` ask for a checkpoint of the current step.

        Args:
            together: Whether processes talk to each other after this step, which `save_minutes`
                needs.
        """
        if self.options.save_minutes is None:
            return state.step % state.steps_between("save_steps") == 0 and not self.is_saved(state)
        due = time.monotonic() - self._last_saved >= 60.0 * self.options.save_minutes
        return together and broadcast_decision(state.accelerator, due) and not self.is_saved(state)

    def is_saved(self, state: TrainState) -> bool:
        """Return whether a checkpoint of the current step is complete or being written."""
        return state.step == self._saved_step

    def save_checkpoint(
        self, state: TrainState, batches: MicroBatchLoader, temporary: bool = False
    ) -> None:
        """Copy what `restore` needs; a thread writes it, and prunes old checkpoints, while training
        continues.

        Nothing is written if the loss of a step since the last look was not finite.

        Args:
            temporary: The run was interrupted; the next checkpoint replaces this one.
        """
        assert self._writer is not None  # `start` creates it
        state.progress.temporary = temporary
        state.progress.batch_sampler = batches.state_dict()
        model = state.gather_model(to_save=True)
        resume_state = state.resume_state()
        interrupted_at, self._temporary_step = self._temporary_step, None

        def prune() -> None:
            """Delete the checkpoint of an earlier interruption and, unless this one is temporary
            too, the oldest.
            """
            if interrupted_at is not None and checkpoint_folder(self.path, interrupted_at).exists():
                delete_folder(checkpoint_folder(self.path, interrupted_at))
            if not temporary:
                for old in list_checkpoints(self.path)[: -(self.options.keep_last or 1)]:
                    delete_folder(old)

        folder = checkpoint_folder(self.path, state.step)
        state.unfinished_checkpoint = self._writer.save(model, resume_state, folder, then=prune)
        self._saved_step, self._last_saved = state.step, time.monotonic()

    def finish_saving(self) -> None:
        if self._writer is not None:
            self._writer.wait()

    def close(self) -> None:
        """Wait for the thread that writes checkpoints, also after an error, so that it writes no
        more.
        """
        if self._writer is not None:
            self._writer.close()

    def keep_best(self, state: TrainState, entry: dict[str, Any], sentences: int) -> None:
        """Rank a validation on so many sentences, and keep the best model."""
        new = rank(entry, self.options.best_metric)
        if new[0] == -math.inf:
            return
        best, reason = state.progress.record_rank(new, self.options.best_metric, sentences)
        if reason != self.options.best_metric:
            self._log(state, f"The best model is that of step {best}, by validation {reason}.")
        model = state.gather_model(to_save=True)
        if state.accelerator.is_main_process:
            if state.step == best:
                save_model_folder(
                    model, state.tokenizer, self.path / f"{_BEST}{state.step}", hashed=True
                )
            for folder in list_checkpoints(self.path, _BEST):
                if step_of(folder) != best:
                    delete_folder(folder)
        wait_for_processes(state.accelerator)

    def save_model(self, state: TrainState, model: PreTrainedModel, name: str = ".") -> Path:
        """Write `model` with tokenizer and recipe, to the run's folder or a folder in it."""
        folder = self.path / name
        if state.accelerator.is_main_process:
            recipe = _as_json(state.progress.recipe)
            save_model_folder(model, state.tokenizer, folder, hashed=True, **{_RECIPE: recipe})
        wait_for_processes(state.accelerator)
        return folder

    @staticmethod
    def _log(state: TrainState, message: str) -> None:
        if state.accelerator.is_main_process:
            logger.info(message)


def _as_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def prune_after(output_dir: str | Path, step: int) -> None:
    """Delete checkpoints and best models of later steps than `step`, from which a run resumes."""
    for path in [*list_checkpoints(output_dir), *list_checkpoints(output_dir, _BEST)]:
        if step_of(path) > step:
            delete_folder(path)
