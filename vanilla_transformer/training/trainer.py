"""The training loop (section 5 of the paper) on Accelerate: one process or many, one line for each step of it."""

import json
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from vanilla_transformer.data.batch_sampler import StatefulBatchSampler, collate
from vanilla_transformer.file_utils import write_text_atomically
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import Recipe
from .averaging import average_checkpoints, load_weights
from .checkpoint import (
    Progress,
    TrainingState,
    best_folder,
    checkpoint_folder,
    clear_remains,
    delete_checkpoint,
    forget_folders_after,
    keep_best_models,
    keep_last_checkpoints,
    list_checkpoints,
    save_checkpoint,
    save_model_folder,
)
from .distributed import main_process_says, sum_over_processes
from .environment import describe_machine, forget_old_products
from .metrics import StepLog, append_entry, describe, forget_entries_after, peak_memory_gib
from .resuming import flatten
from .setup import RunParts, build_parts
from .sharded_checkpoint import save_sharded_checkpoint
from .train_state import Learner
from .train_step import NumberedBatch, Updater
from .validation import Evaluator, Validation, rank

logger = logging.getLogger(__name__)


class TrainingInterrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM ended a run early; its last checkpoint is whole, and the same command goes on from it."""

    # EX_TEMPFAIL of sysexits.h: a failure that goes away when the same is tried again.
    exit_status = 75


def train(recipe: Recipe, evaluate: Evaluator) -> Path:
    """
    Trains a model from raw text and leaves it in `recipe.output.output_dir` as an ordinary model folder: the mean of
    the last checkpoints (section 6.1), with the paper's decoding as the default of `generate()`.

    Where that folder holds checkpoints of the same run and no finished model, the run goes on from the last of them as
    if it had never ended.

    Args:
        evaluate: Scores the model on the validation pairs, at every validation and once more at the end.

    Raises:
        ValueError, OSError: something in the recipe or its files cannot work; nothing has been written then.
        TrainingInterrupted: SIGINT or SIGTERM came; a checkpoint has been written.
        FloatingPointError: the loss is not finite; the text names the update, its sentences and the last checkpoint.
    """
    return prepare_run(recipe, evaluate).run()


def prepare_run(recipe: Recipe, evaluate: Evaluator) -> "TrainingRun":
    """A run with everything read and built, and nothing written; where the recipe's folder holds one, it goes on."""
    forget_old_products()
    parts = build_parts(recipe)
    run = TrainingRun(parts, evaluate)
    if parts.state is not None:
        run.resume_from(parts.state)
    return run


class TrainingRun:
    """The state of one run, and the steps that it consists of."""

    def __init__(self, parts: RunParts, evaluate: Evaluator):
        self.recipe, options = parts.recipe, parts.recipe.optimization
        self.accelerator = parts.accelerator
        self.tokenizer = parts.tokenizer
        self.corpus = parts.corpus
        self.validation = Validation(
            parts.validation_pairs, parts.tokenizer, evaluate, parts.accelerator, parts.recipe.data.max_tokens
        )
        self.order = StatefulBatchSampler(
            parts.corpus,
            parts.recipe.data.max_tokens,
            options.seed,
            options.gradient_accumulation_steps,
            parts.accelerator.num_processes,
            parts.accelerator.process_index,
        )
        self.learner = Learner(parts.model, options, parts.accelerator)
        self.updater = Updater(self.learner, parts.recipe)
        self.output_dir = Path(parts.recipe.output.output_dir)
        self.progress = Progress(num_processes=parts.accelerator.num_processes, recipe=flatten(parts.recipe))
        self.signalled = False  # in this process
        self.interrupted = False  # in all of them, behind the same update
        self.passing_step: int | None = None
        self.started = self.last_saved = time.monotonic()
        self.log = StepLog()

    def run(self) -> Path:
        """Trains to the end, averages, and writes the model folder."""
        self._prepare_output()
        self.learner.prepared.train()
        with self._interruptible():
            self._train_steps()
        if self.progress.step and not self._is_saved():
            self.progress.passing = self.interrupted
            self._save_checkpoint()
        if self.interrupted:
            self.learner.end()
            raise TrainingInterrupted(self._describe_interruption())
        return self._finish()

    def _describe_interruption(self) -> str:
        if not self.progress.step:
            return "Interrupted before the first update. There is nothing to save."
        return (
            f"Interrupted after update {self.progress.step}. The same command goes on from "
            f"{checkpoint_folder(self.output_dir, self.progress.step)}, which is a model that can be used."
        )

    def resume_from(self, state: TrainingState) -> None:
        """Takes up a run whose weights the model has been given already."""
        progress = state.progress
        self._tell(f"Going on from update {progress.step}, after {progress.minutes:.1f} minutes of training.")
        if progress.num_processes != self.accelerator.num_processes:
            self._tell(
                f"There are {self.accelerator.num_processes} processes in place of {progress.num_processes}, and an "
                f"update has {self.order.batches_per_step} batches. It goes on from the same place in the data."
            )
        self.order.load_state_dict(progress.order)
        self.learner.load_training_state(state)
        self.log.load_state_dict(progress.log)
        self.passing_step = progress.step if progress.passing else None
        progress.passing = False
        progress.num_processes, progress.recipe = self.accelerator.num_processes, self.progress.recipe
        self.progress = progress
        self.started = time.monotonic() - 60.0 * progress.minutes

    def time_updates(self, count: int) -> list[float]:
        """Seconds of each of the first `count` updates. They change the weights, and write nothing."""
        self.learner.prepared.train()
        times = []
        for batches in islice(self._updates(), count):
            started = time.monotonic()
            self._update_parameters(batches)
            self.progress.step += 1
            times.append(time.monotonic() - started)
        return times

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """
        SIGINT (Ctrl-C) and SIGTERM (preemption) end training behind the update in progress, in all processes behind
        the same one, since they interrupt them in different places. A second one ends the program at once.
        """
        previous: dict[int, Any] = {}

        def interrupt(signal_number: int, frame: Any) -> None:
            self.signalled = True
            for number, handler in previous.items():
                signal.signal(number, handler)

        previous |= {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _train_steps(self) -> None:
        output = self.recipe.output
        if self._is_over():
            return
        with self._progress_bar() as bar, logging_redirect_tqdm():
            for batches in self._updates():  # of like length, filled up to `max_tokens`; epoch after epoch
                norm = self._update_parameters(batches)  # forward, backward, clip, Adam, learning rate, average
                self.progress.step += 1
                bar.total = self._expected_steps()
                bar.update()
                if self.progress.step % output.logging_steps == 0:
                    bar.set_postfix(self._log_training(norm))  # a line of metrics.jsonl
                if self.progress.step % output.eval_steps == 0:
                    self._validate_and_rank()  # loss and greedy BLEU; the best models are kept
                if self._is_time_to_save():
                    self._save_checkpoint()  # a model that training can go on from
                if self._is_over():  # updates, minutes, patience, or an interruption
                    return

    def _updates(self) -> Iterator[list[NumberedBatch]]:
        """This process's batches of each update, as many as are accumulated."""
        for update in self.order:
            yield [NumberedBatch(numbers, collate(pairs, self.tokenizer.pad_token_id)) for numbers, pairs in update]

    def _update_parameters(self, batches: list[NumberedBatch]) -> torch.Tensor:
        """One update, of which the log is told. Returns the gradient's norm."""
        sums, norm = self.updater.update(batches, self.progress.step)
        self.log.add(sums)
        return norm

    def _validate_and_rank(self) -> None:
        """Validates greedily, to see where training stands, and keeps the checkpoint if it is among the best."""
        entry = self._validate(self.learner.whole_model(), num_beams=1)
        best = rank(entry, self.progress, self.recipe.output) if entry else None
        if best is not None:
            self._keep_best(best)

    def _keep_best(self, steps: set[int]) -> None:
        """The models of the best validations so far, as ordinary folders."""
        model = self.learner.whole_model()
        if self.accelerator.is_main_process:
            if self.progress.step in steps:
                save_model_folder(model, self.tokenizer, best_folder(self.output_dir, self.progress.step))
            keep_best_models(self.output_dir, steps)
        self.accelerator.wait_for_everyone()

    def _validate(
        self, model: VanillaTransformerForConditionalGeneration, kind: str | None = None, **generate_kwargs: Any
    ) -> dict[str, Any]:
        """Loss and scores on the validation pairs, if there are any, logged."""
        if not self.validation.pairs:
            return {}
        entry = {"step": self.progress.step, "minutes": self._minutes()} | ({} if kind is None else {"model": kind})
        entry |= self.validation.measure(model, **generate_kwargs)
        self._write_metrics(entry)
        self._tell(f"Validation: {describe(entry)}")
        return entry

    def _log_training(self, norm: torch.Tensor) -> dict[str, str]:
        """Appends a line to the metrics and returns what the progress bar shows."""
        rate = self.learner.schedule.get_last_lr()[0]
        entry: dict[str, Any] = {"step": self.progress.step, "epoch": self.order.progress, "minutes": self._minutes()}
        entry |= self.log.pop() | {"learning_rate": rate, "gradient_norm": float(norm)}
        entry |= {"peak_memory_gib": peak_memory_gib(self.accelerator.device)}
        self._write_metrics(entry)
        return {"loss": f"{entry['loss']:.3f}", "tokens/s": f"{entry['tokens_per_second']:.0f}", "lr": f"{rate:.1e}"}

    def _write_metrics(self, entry: dict[str, Any]) -> None:
        if self.accelerator.is_main_process:
            append_entry(self.output_dir, entry)
        numbers = {name: value for name, value in entry.items() if isinstance(value, int | float)}
        self.accelerator.log(numbers, step=self.progress.step)

    def _prepare_output(self) -> None:
        self.accelerator.wait_for_everyone()  # all processes have read what is there
        if self.accelerator.is_main_process:
            self.output_dir.mkdir(parents=True, exist_ok=True)
            clear_remains(self.output_dir)
            # Behind the update that this run begins with is what was cut off, or of an earlier run.
            forget_folders_after(self.output_dir, self.progress.step)
            forget_entries_after(self.output_dir, self.progress.step)
            self._tell(str(self.corpus))
            self._write_json("corpus.json", self.corpus.to_dict())
            self._write_json("machine.json", describe_machine(self.accelerator))
        if self.recipe.output.report_to:
            self.accelerator.init_trackers("vanilla-transformer", config=_loggable(self.progress.recipe))
        self.accelerator.wait_for_everyone()

    def _is_time_to_save(self) -> bool:
        output = self.recipe.output
        if output.save_minutes is None:
            return self.progress.step % (output.save_steps or 1) == 0 and not self._is_saved()
        due = time.monotonic() - self.last_saved >= 60.0 * output.save_minutes
        return main_process_says(self.accelerator, due) and not self._is_saved()

    def _is_saved(self) -> bool:
        """Whether there is a checkpoint of the present update. Asked of the main process's disk."""
        return main_process_says(self.accelerator, checkpoint_folder(self.output_dir, self.progress.step).exists())

    def _save_checkpoint(self) -> None:
        """Writes what `resume_from` needs; all processes take part, and each writes its share or the main one all."""
        self.progress.minutes = self._minutes()
        self.progress.order = self.order.state_dict()
        self.progress.log = self.log.state_dict()
        self.learner.complete(self.progress)
        folder = checkpoint_folder(self.output_dir, self.progress.step)
        if self.recipe.output.sharded_checkpoints:
            save_sharded_checkpoint(self.learner, self.tokenizer, self.progress, folder)
        else:
            model, state = self.learner.whole_model(), self.learner.training_state(self.progress)
            if self.accelerator.is_main_process:
                save_checkpoint(model, self.tokenizer, state, folder)
        if self.accelerator.is_main_process:
            self._make_way()
        self.last_saved = time.monotonic()
        self.accelerator.wait_for_everyone()

    def _make_way(self) -> None:
        """Removes an earlier interruption's checkpoint and, unless this is one, those that are too old."""
        if self.passing_step is not None:
            delete_checkpoint(self.output_dir, self.passing_step)
        if not self.progress.passing:
            keep_last_checkpoints(self.output_dir, self.recipe.output.keep_last or 1)

    def _finish(self) -> Path:
        """Averages the last checkpoints, scores the result and writes it to the output folder itself."""
        self.accelerator.wait_for_everyone()
        folders = list_checkpoints(self.output_dir)[-self.recipe.output.average_checkpoints :]
        if not folders:
            raise ValueError("Training ended before its first update, so there is no model to save.")
        if self.learner.ema is not None:
            load_weights(self.learner.whole, self.learner.whole_ema())
            self._save_model(self.output_dir / "ema")
            self._validate(self.learner.whole, "moving average")
        average_checkpoints(self.learner.whole, folders)
        self._tell(f"The final model is the mean of {len(folders)} checkpoints.")
        self._validate(self.learner.whole, "mean of checkpoints")
        self._save_model(self.output_dir)
        self.learner.end()
        return self.output_dir

    def _save_model(self, folder: Path) -> None:
        """A model folder with the recipe as it was run."""
        if self.accelerator.is_main_process:
            save_model_folder(self.learner.whole, self.tokenizer, folder)
            self._write_json(f"{folder.relative_to(self.output_dir)}/recipe.json", self.progress.recipe)
        self.accelerator.wait_for_everyone()

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        """Writes a file of the run's folder, whole or not at all."""
        write_text_atomically(self.output_dir / name, json.dumps(value, indent=2) + "\n")

    def _tell(self, message: str) -> None:
        if self.accelerator.is_main_process:
            logger.info(message)

    def _progress_bar(self) -> tqdm:
        return tqdm(
            total=self.recipe.optimization.max_steps,
            initial=self.progress.step,
            desc="Training",
            unit="update",
            disable=not self.accelerator.is_local_main_process,
        )

    def _expected_steps(self) -> int:
        """Updates that there will have been at the end, as far as one can tell."""
        options, step = self.recipe.optimization, self.progress.step
        if options.max_minutes is None:
            return options.max_steps
        return min(options.max_steps, max(step, round(step * options.max_minutes / self._minutes())))

    def _is_over(self) -> bool:
        options = self.recipe.optimization
        signalled = self.signalled  # a signal may come between here and the end, and counts the next time
        over = signalled or self.progress.step >= options.max_steps
        over = over or (options.max_minutes is not None and self._minutes() >= options.max_minutes)
        patience = options.early_stopping_patience
        over = over or (patience is not None and self.progress.validations_without_improvement >= patience)
        # Clocks and interrupts differ: all processes end when the first one does.
        sums = sum_over_processes(self.accelerator, [over, signalled])
        over, self.interrupted = (bool(value) for value in sums)
        return over

    def _minutes(self) -> float:
        return (time.monotonic() - self.started) / 60.0


def _loggable(recipe: dict[str, Any]) -> dict[str, Any]:
    """Values that every tracker takes: TensorBoard knows no None."""
    return {
        name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in recipe.items()
    }
