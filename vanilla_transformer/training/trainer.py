"""The training loop (section 5 of the paper) on Accelerate: one process or many, one line for each step of it."""

import copy
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from safetensors.torch import load_file
from torch.nn.utils import clip_grad_norm_
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_NAME

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import DataArguments, OptimizationArguments, Recipe
from .averaging import ExponentialMovingAverage, average_checkpoints, load_weights
from .batching import IGNORED_LABEL, collate
from .checkpoint import (
    Progress,
    TrainingState,
    best_folder,
    check_output_dir,
    checkpoint_folder,
    clear_remains,
    delete_checkpoint,
    forget_folders_after,
    keep_best_models,
    keep_last_checkpoints,
    latest_resumable,
    list_checkpoints,
    load_training_state,
    save_checkpoint,
    save_model_folder,
    written_aside,
)
from .corpora import EncodedPair, SentencePair, encode_pairs
from .loss import smoothed_cross_entropy
from .metrics import StepLog, UpdateSums, append_entry, describe, forget_entries_after, peak_memory_gib
from .mixing import Corpus
from .order import UpdateOrder
from .preparation import open_corpus, read_validation_pairs
from .resuming import check_same_run, flatten
from .schedule import PAPER_SCHEDULE, make_schedule
from .sharding import like, load_optimizer_state, shard_model, whole_optimizer_state, whole_tensor, whole_weights
from .tokenizing import check_tokenizer_fits, prepare_tokenizer, special_token_ids

logger = logging.getLogger(__name__)

# Scores a model on validation pairs: (model, tokenizer, pairs, **generate_kwargs) -> {"bleu": 35.1, ...}
Evaluator = Callable[..., dict[str, Any]]
Batch = dict[str, torch.Tensor]


class NumberedBatch(NamedTuple):
    """A batch, and which pairs of the corpus it holds, counted from 0."""

    numbers: list[int]
    tensors: Batch


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
    output = recipe.output
    check_output_dir(output.output_dir, output.overwrite_output_dir)
    checkpoint = None if output.overwrite_output_dir else latest_resumable(output.output_dir)
    state = None if checkpoint is None else load_training_state(checkpoint)
    if state is not None:
        check_same_run(state.progress.recipe, flatten(recipe))
    accelerator = _accelerator(recipe)
    set_seed(recipe.optimization.seed)
    tokenizer = _tokenizer(recipe.data, checkpoint)
    corpus = open_corpus(recipe.data, tokenizer, recipe.optimization.seed)
    validation_pairs = read_validation_pairs(recipe.data)
    model = build_model(recipe.model, tokenizer, corpus.max_source_length)
    if recipe.optimization.attn_implementation is not None:
        model.set_attn_implementation(recipe.optimization.attn_implementation)
    if checkpoint is not None:
        load_weights(model, load_file(checkpoint / SAFE_WEIGHTS_NAME))
    run = TrainingRun(recipe, accelerator, model, tokenizer, corpus, validation_pairs, evaluate)
    if state is not None:
        run.go_on_from(state)
    return run


def _accelerator(recipe: Recipe) -> Accelerator:
    options, output = recipe.optimization, recipe.output
    return Accelerator(
        cpu=not torch.accelerator.is_available(),  # or Accelerate passes over the other processes of `torchrun`
        mixed_precision=options.mixed_precision,
        log_with=output.report_to.split(",") if output.report_to else None,
        project_dir=output.output_dir,
        dynamo_plugin=TorchDynamoPlugin(backend="inductor", dynamic=True) if options.torch_compile else None,
    )


def _tokenizer(data: DataArguments, checkpoint: Path | None) -> PreTrainedTokenizerBase:
    """That of the checkpoint which a run goes on from, or the recipe's."""
    return prepare_tokenizer(data, None if checkpoint is None else str(checkpoint))


def build_model(
    model_arguments: Any, tokenizer: PreTrainedTokenizerBase, max_source_length: int
) -> VanillaTransformerForConditionalGeneration:
    """A model of the given shape for the vocabulary of `tokenizer`, which decodes as the paper does."""
    config = VanillaTransformerConfig(
        **asdict(model_arguments),
        **special_token_ids(tokenizer),
        vocab_size=len(tokenizer),
        max_source_length=max_source_length,
    )
    check_tokenizer_fits(tokenizer, config)
    model = VanillaTransformerForConditionalGeneration(config)
    model.generation_config = paper_generation_config(
        config.pad_token_id, config.eos_token_id, config.decoder_start_token_id
    )
    return model


class TrainingRun:
    """The state of one run, and the steps that it consists of."""

    def __init__(
        self,
        recipe: Recipe,
        accelerator: Accelerator,
        model: VanillaTransformerForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        validation_pairs: Sequence[SentencePair],
        evaluate: Evaluator,
    ):
        options = recipe.optimization
        self.recipe = recipe
        self.accelerator = accelerator
        self.tokenizer = tokenizer
        self.validation_pairs = validation_pairs
        self.validation_batches = self._validation_batches(encode_pairs(tokenizer, validation_pairs))
        self.evaluate = evaluate
        self.corpus = corpus
        self.order = UpdateOrder(
            corpus,
            recipe.data.max_tokens,
            options.seed,
            options.gradient_accumulation_steps,
            accelerator.num_processes,
            accelerator.process_index,
        )
        self._place_model(model, options)
        self.optimizer = accelerator.prepare(self._make_optimizer(options))
        # Not prepared by Accelerate, which would advance it once for every process.
        self.schedule = make_schedule(
            options.lr_scheduler,
            self.optimizer.optimizer,
            model.config.d_model,
            options.warmup_steps,
            options.max_steps,
            options.learning_rate_scale,
        )
        self.ema = (
            None
            if options.ema_decay is None
            else ExponentialMovingAverage(dict(self.core.named_parameters()), options.ema_decay)
        )
        self.output_dir = Path(recipe.output.output_dir)
        self.progress = Progress(num_processes=accelerator.num_processes, recipe=flatten(recipe))
        self.interrupted = False
        self.passing_step: int | None = None
        self.started = self.last_saved = time.monotonic()
        self.log = StepLog()

    def _place_model(self, model: VanillaTransformerForConditionalGeneration, options: OptimizationArguments) -> None:
        """
        `model` is what is called, `core` the same without Accelerate's wrapping, `whole` one that a single process can
        decode with: the core itself, or a copy that the shards of all processes are gathered into.
        """
        if options.fsdp:
            self.whole = copy.deepcopy(model).to(self.accelerator.device)
            self.core = model.to(self.accelerator.device)
            shard_model(self.core, self.accelerator.num_processes)
            self.model: torch.nn.Module = self.core
        else:
            self.model = self.accelerator.prepare(model)
            self.core = self.whole = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def _make_optimizer(self, options: OptimizationArguments) -> torch.optim.Optimizer:
        """The paper's Adam. Its schedule gives the rate itself, not a factor."""
        return torch.optim.Adam(
            self.core.parameters(),
            lr=1.0 if options.lr_scheduler == PAPER_SCHEDULE else options.learning_rate or 0.0,
            betas=(options.adam_beta1, options.adam_beta2),
            eps=options.adam_epsilon,
            fused=True,  # one pass over all parameters in place of one a parameter
        )

    def run(self) -> Path:
        """Trains to the end, averages, and writes the model folder."""
        self._prepare_output()
        self.model.train()
        with self._interruptible():
            self._train_steps()
        if self.progress.step and not self._is_saved():
            self.progress.passing = self.interrupted
            self._save_checkpoint()
        if self.interrupted:
            self.accelerator.end_training()
            raise TrainingInterrupted(self._describe_interruption())
        return self._finish()

    def _describe_interruption(self) -> str:
        if not self.progress.step:
            return "Interrupted before the first update. There is nothing to save."
        return (
            f"Interrupted after update {self.progress.step}. The same command goes on from "
            f"{checkpoint_folder(self.output_dir, self.progress.step)}, which is a model that can be used."
        )

    def go_on_from(self, state: TrainingState) -> None:
        """Takes up a run whose weights the model has been given already."""
        progress = state.progress
        self._tell(f"Going on from update {progress.step}, after {progress.minutes:.1f} minutes of training.")
        if progress.num_processes != self.accelerator.num_processes:
            self._tell(
                f"There are {self.accelerator.num_processes} processes in place of {progress.num_processes}, and an "
                f"update has {self.order.batches_per_update} batches. It goes on from the same place in the data."
            )
        self.order.load_state_dict(progress.order)
        load_optimizer_state(self.core, self.optimizer.optimizer, state.optimizer)
        self.schedule.load_state_dict(progress.schedule)
        self.log.load_state_dict(progress.log)
        if self.ema is not None and state.ema:
            average = self.ema.state_dict()
            self.ema.load_state_dict({name: like(tensor, average[name]) for name, tensor in state.ema.items()})
        if self.accelerator.scaler is not None and progress.scaler:
            self.accelerator.scaler.load_state_dict(progress.scaler)
        self.passing_step = progress.step if progress.passing else None
        progress.passing = False
        progress.num_processes, progress.recipe = self.accelerator.num_processes, self.progress.recipe
        self.progress = progress
        self.started = time.monotonic() - 60.0 * progress.minutes

    def time_updates(self, count: int) -> list[float]:
        """Seconds of each of the first `count` updates. They change the weights, and write nothing."""
        self.model.train()
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
            self.interrupted = True
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
            for batches in self._updates():
                norm = self._update_parameters(batches)
                self.progress.step += 1
                bar.total = self._expected_steps()
                bar.update()
                if self.progress.step % output.logging_steps == 0:
                    bar.set_postfix(self._log_training(norm))
                if self.progress.step % output.eval_steps == 0:
                    self._validate_and_rank()
                if self._is_time_to_save():
                    self._save_checkpoint()
                if self._is_over():
                    return

    def _updates(self) -> Iterator[list[NumberedBatch]]:
        """This process's batches of each update, as many as are accumulated."""
        for update in self.order:
            yield [NumberedBatch(numbers, self._collate(pairs)) for numbers, pairs in update]

    def _update_parameters(self, batches: list[NumberedBatch]) -> torch.Tensor:
        """
        One update: the gradient of the mean loss over all target tokens of all batches of all processes. Returns the
        gradient's norm.
        """
        tensors = [self._on_device(batch.tensors) for batch in batches]
        tokens = self._sum_over_processes([sum(count_tokens(batch) for batch in tensors)])[0]
        losses = [
            self._backward(batch, index, index == len(tensors) - 1, tokens) for index, batch in enumerate(tensors)
        ]
        sums = UpdateSums(*self._sum_over_processes(_sum_update(losses, tensors)).tolist())
        self._check_finite(sums, batches)
        norm = self._clip_gradient()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        if self.ema is not None:
            self.ema.update()
        self.log.add(sums)
        return norm

    def _backward(self, batch: Batch, index: int, last: bool, tokens: torch.Tensor) -> torch.Tensor:
        """Adds one batch's share to the gradient; returns its plain and its smoothed loss, summed over tokens."""
        self._seed_draws(index)
        with self._gradients_stay_here(until_last=not last):
            with self.accelerator.autocast():
                logits = self.model(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    decoder_input_ids=self.core.prepare_decoder_input_ids_from_labels(batch["labels"]),
                    use_cache=False,
                ).logits
            loss = smoothed_cross_entropy(logits, batch["labels"], self.recipe.optimization.label_smoothing)
            # Processes average their gradients, but `tokens` already counts those of all of them.
            self.accelerator.backward(loss.smoothed * self.accelerator.num_processes / tokens)
        return torch.stack([loss.plain, loss.smoothed.detach()])

    def _seed_draws(self, index: int) -> None:
        """
        Makes dropout a function of seed, update and batch, wherever the batch is computed: a run that goes on draws
        what it would have drawn, and two processes draw what one that accumulates does.
        """
        of_update = index * self.accelerator.num_processes + self.accelerator.process_index
        entropy = (self.recipe.optimization.seed, self.progress.step, of_update)
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1)))

    @contextmanager
    def _gradients_stay_here(self, until_last: bool) -> Iterator[None]:
        """While batches accumulate processes need not exchange their gradients."""
        if self.recipe.optimization.fsdp:
            self.core.set_requires_gradient_sync(not until_last)
        with self.accelerator.no_sync(self.model) if until_last and self.model is not self.core else nullcontext():
            yield

    def _clip_gradient(self) -> torch.Tensor:
        """The norm of the whole gradient, which is scaled down to `max_grad_norm` where that is given."""
        self.accelerator.unscale_gradients(self.optimizer)
        most = self.recipe.optimization.max_grad_norm
        return whole_tensor(clip_grad_norm_(self.core.parameters(), float("inf") if most is None else most))

    def _check_finite(self, sums: UpdateSums, batches: list[NumberedBatch]) -> None:
        if np.isfinite(sums.smoothed_loss):
            return
        saved = list_checkpoints(self.output_dir)
        sentences = [number + 1 for batch in batches for number in batch.numbers]
        raise FloatingPointError(
            f"The loss of update {self.progress.step + 1} is {sums.smoothed_loss}, so training stops. This process's "
            f"part of it was sentences {', '.join(map(str, sentences))} of the corpus. The last good checkpoint is "
            f"{saved[-1] if saved else 'none'}. A lower learning rate, a longer warm-up or --max_grad_norm 1 may help."
        )

    def _validate_and_rank(self) -> None:
        """Validates greedily, to see where training stands, and keeps the checkpoint if it is among the best."""
        entry = self._validate(self._whole_model(), num_beams=1)
        metric = self.recipe.output.best_metric
        score = -entry["validation_loss"] if metric == "loss" else entry.get(metric)
        if score is None:
            return
        best = self.progress.best
        without = 0 if not best or score > best[0]["score"] else self.progress.validations_without_improvement + 1
        self.progress.validations_without_improvement = without
        best.append({"step": self.progress.step, "score": score})
        best.sort(key=lambda other: -other["score"])
        del best[max(1, self.recipe.output.keep_best) :]
        self._keep_best({int(entry["step"]) for entry in best[: self.recipe.output.keep_best]})

    def _keep_best(self, steps: set[int]) -> None:
        """The models of the best validations so far, as ordinary folders."""
        model = self._whole_model()
        if self.accelerator.is_main_process:
            if self.progress.step in steps:
                save_model_folder(model, self.tokenizer, best_folder(self.output_dir, self.progress.step))
            keep_best_models(self.output_dir, steps)
        self.accelerator.wait_for_everyone()

    def _validate(
        self, model: VanillaTransformerForConditionalGeneration, kind: str | None = None, **generate_kwargs: Any
    ) -> dict[str, Any]:
        """Loss and scores on the validation pairs, logged. Decodes by the model's own defaults, the paper's."""
        if not self.validation_pairs:
            return {}
        model.eval()
        entry = {"step": self.progress.step, "minutes": self._minutes()} | ({} if kind is None else {"model": kind})
        entry["validation_loss"] = self._validation_loss(model)
        entry |= self.evaluate(model, self.tokenizer, self.validation_pairs, **generate_kwargs)
        self.accelerator.wait_for_everyone()
        model.train()
        self._write_metrics(entry)
        self._tell(f"Validation: {describe(entry)}")
        return entry

    @torch.no_grad()
    def _validation_loss(self, model: VanillaTransformerForConditionalGeneration) -> float:
        """Plain cross-entropy in nats a target token."""
        plain = tokens = 0.0
        for batch in self.validation_batches[self.accelerator.process_index :: self.accelerator.num_processes]:
            batch = self._on_device(batch)
            with self.accelerator.autocast():
                logits = model(**batch).logits
            plain += float(smoothed_cross_entropy(logits, batch["labels"], smoothing=0.0).plain)
            tokens += count_tokens(batch)
        plain, tokens = self._sum_over_processes([plain, tokens]).tolist()
        return plain / tokens

    def _log_training(self, norm: torch.Tensor) -> dict[str, str]:
        """Appends a line to the metrics and returns what the progress bar shows."""
        rate = self.schedule.get_last_lr()[0]
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
        if self.recipe.output.report_to:
            self.accelerator.init_trackers("vanilla-transformer", config=_loggable(self.progress.recipe))
        self.accelerator.wait_for_everyone()

    def _is_time_to_save(self) -> bool:
        output = self.recipe.output
        if output.save_minutes is None:
            return self.progress.step % (output.save_steps or 1) == 0 and not self._is_saved()
        due = time.monotonic() - self.last_saved >= 60.0 * output.save_minutes
        return self._first_process_says(due) and not self._is_saved()

    def _is_saved(self) -> bool:
        """Whether there is a checkpoint of the present update. Asked of the main process's disk."""
        return self._first_process_says(checkpoint_folder(self.output_dir, self.progress.step).exists())

    def _save_checkpoint(self) -> None:
        """Writes what `go_on_from` needs; all processes take part, the main one writes."""
        self.progress.minutes = self._minutes()
        self.progress.order = self.order.state_dict()
        self.progress.schedule = self.schedule.state_dict()
        self.progress.log = self.log.state_dict()
        if self.accelerator.scaler is not None:
            self.progress.scaler = self.accelerator.scaler.state_dict()
        model = self._whole_model()
        optimizer = whole_optimizer_state(self.core, self.optimizer.optimizer)
        state = TrainingState(self.progress, optimizer, self._whole_ema())
        if self.accelerator.is_main_process:
            save_checkpoint(model, self.tokenizer, state, checkpoint_folder(self.output_dir, self.progress.step))
            self._make_way()
        self.last_saved = time.monotonic()
        self.accelerator.wait_for_everyone()

    def _make_way(self) -> None:
        """Removes an earlier interruption's checkpoint and, unless this is one, those that are too old."""
        if self.passing_step is not None:
            delete_checkpoint(self.output_dir, self.passing_step)
        if not self.progress.passing:
            keep_last_checkpoints(self.output_dir, self.recipe.output.keep_last or 1)

    def _whole_model(self) -> VanillaTransformerForConditionalGeneration:
        """The present weights in one piece."""
        if self.whole is not self.core:
            load_weights(self.whole, whole_weights(self.core))
        return self.whole

    def _whole_ema(self) -> dict[str, torch.Tensor]:
        return {} if self.ema is None else {name: whole_tensor(t).cpu() for name, t in self.ema.state_dict().items()}

    def _finish(self) -> Path:
        """Averages the last checkpoints, scores the result and writes it to the output folder itself."""
        self.accelerator.wait_for_everyone()
        folders = list_checkpoints(self.output_dir)[-self.recipe.output.average_checkpoints :]
        if not folders:
            raise ValueError("Training ended before its first update, so there is no model to save.")
        if self.ema is not None:
            load_weights(self.whole, self._whole_ema())
            self._save_model(self.output_dir / "ema")
            self._validate(self.whole, "moving average")
        average_checkpoints(self.whole, folders)
        self._tell(f"The final model is the mean of {len(folders)} checkpoints.")
        self._validate(self.whole, "mean of checkpoints")
        self._save_model(self.output_dir)
        self.accelerator.end_training()
        return self.output_dir

    def _save_model(self, folder: Path) -> None:
        """A model folder with the recipe as it was run."""
        if self.accelerator.is_main_process:
            save_model_folder(self.whole, self.tokenizer, folder)
            self._write_json(f"{folder.relative_to(self.output_dir)}/recipe.json", self.progress.recipe)
        self.accelerator.wait_for_everyone()

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        """Writes a file of the run's folder, whole or not at all."""
        path = self.output_dir / name
        with written_aside(path.parent) as aside:
            (aside / path.name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

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
        over = self.interrupted or self.progress.step >= options.max_steps
        over = over or (options.max_minutes is not None and self._minutes() >= options.max_minutes)
        patience = options.early_stopping_patience
        over = over or (patience is not None and self.progress.validations_without_improvement >= patience)
        # Clocks and interrupts differ: all processes end when the first one does.
        over, self.interrupted = (bool(value) for value in self._sum_over_processes([over, self.interrupted]))
        return over

    def _minutes(self) -> float:
        return (time.monotonic() - self.started) / 60.0

    def _first_process_says(self, value: bool) -> bool:
        """What the main process finds; clocks and disks of the others may differ."""
        return bool(self._sum_over_processes([value and self.accelerator.is_main_process])[0])

    def _sum_over_processes(self, values: Sequence[float] | torch.Tensor) -> torch.Tensor:
        precise = torch.float32 if self.accelerator.device.type == "mps" else torch.float64  # Apple's GPUs have none
        tensor = torch.as_tensor(values, dtype=precise).to(self.accelerator.device)
        return self.accelerator.reduce(tensor, reduction="sum")

    def _on_device(self, batch: Batch) -> Batch:
        return {name: tensor.to(self.accelerator.device) for name, tensor in batch.items()}

    def _collate(self, pairs: Sequence[EncodedPair]) -> Batch:
        return collate(pairs, self.tokenizer.pad_token_id)

    def _validation_batches(self, pairs: Sequence[EncodedPair]) -> list[Batch]:
        by_length = sorted(pairs, key=lambda pair: len(pair.source))
        return [self._collate(by_length[first : first + 32]) for first in range(0, len(by_length), 32)]


def _sum_update(losses: list[torch.Tensor], batches: list[Batch]) -> torch.Tensor:
    """The values of `UpdateSums` for this process's batches."""
    counts = [[count_tokens(batch), *_count_both_sides(batch)] for batch in batches]
    return torch.cat([torch.stack(losses).sum(dim=0).cpu().double(), torch.tensor(counts).sum(dim=0)])


def _count_both_sides(batch: Batch) -> tuple[int, int]:
    """Tokens of source and target, without and with padding."""
    tokens = int(batch["attention_mask"].sum()) + count_tokens(batch)
    return tokens, batch["input_ids"].numel() + batch["labels"].numel()


def count_tokens(batch: Batch) -> int:
    """Target tokens that have a label."""
    return int((batch["labels"] != IGNORED_LABEL).sum())


def _loggable(recipe: dict[str, Any]) -> dict[str, Any]:
    """Values that every tracker takes: TensorBoard knows no None."""
    return {
        name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in recipe.items()
    }
