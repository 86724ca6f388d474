"""The training loop (section 5 of the paper) on Accelerate: one process or many, one line for each step of it."""

import json
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import DataArguments, Recipe
from .batching import IGNORED_LABEL, TokenBatchSampler, collate
from .checkpoint import (
    average_checkpoints,
    check_output_dir,
    checkpoint_folder,
    clear_output_dir,
    delete_all_but_last,
    list_checkpoints,
    save_model_folder,
    written_aside,
)
from .corpora import EncodedPair, SentencePair, encode_pairs, read_dataset, read_text_files
from .loss import smoothed_cross_entropy
from .schedule import noam_lambda
from .tokenizing import check_tokenizer_fits, prepare_tokenizer, special_token_ids

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
# Scores a model on validation pairs: (model, tokenizer, pairs, **generate_kwargs) -> {"bleu": 35.1, ...}
Evaluator = Callable[..., dict[str, Any]]
Batch = dict[str, torch.Tensor]


def train(recipe: Recipe, evaluate: Evaluator) -> Path:
    """
    Trains a model from raw text and leaves it in `recipe.output.output_dir` as an ordinary model folder: the mean of
    the last checkpoints (section 6.1), with the paper's decoding as the default of `generate()`.

    Ctrl-C ends training early: the model is the mean of the checkpoints written until then and the present weights.

    Args:
        evaluate: Scores the model on the validation pairs, at every validation and once more at the end.

    Raises:
        ValueError, OSError: something in the recipe or its files cannot work; nothing has been written then.
    """
    check_output_dir(recipe.output.output_dir, recipe.output.overwrite_output_dir)
    training_pairs, validation_pairs = read_corpus(recipe.data)
    accelerator = Accelerator(mixed_precision=recipe.optimization.mixed_precision)
    set_seed(recipe.optimization.seed)
    tokenizer = prepare_tokenizer(
        training_pairs, recipe.data.vocab_size, recipe.data.tokenizer, recipe.data.tokenizer_model
    )
    encoded = encode_pairs(tokenizer, training_pairs)
    model = build_model(recipe.model, tokenizer, encoded)
    if recipe.optimization.attn_implementation is not None:
        model.set_attn_implementation(recipe.optimization.attn_implementation)
    run = TrainingRun(recipe, accelerator, model, tokenizer, encoded, validation_pairs, evaluate)
    return run.run()


def read_corpus(data: DataArguments) -> tuple[list[SentencePair], list[SentencePair]]:
    """Training and validation pairs; there are none of the latter where the recipe names none."""
    if data.dataset is not None:
        assert data.source_language and data.target_language  # `Recipe` has seen to it, as it has to files below
        languages = (data.source_language, data.target_language)
        return read_dataset(data.dataset, "train", *languages), read_dataset(data.dataset, "validation", *languages)
    assert data.train_source and data.train_target
    training_pairs = read_text_files(data.train_source, data.train_target)
    if not (data.validation_source and data.validation_target):
        return training_pairs, []
    return training_pairs, read_text_files(data.validation_source, data.validation_target)


def build_model(
    model_arguments: Any, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[EncodedPair]
) -> VanillaTransformerForConditionalGeneration:
    """A model of the given shape for the vocabulary of `tokenizer`, which decodes as the paper does."""
    config = VanillaTransformerConfig(
        **asdict(model_arguments),
        **special_token_ids(tokenizer),
        vocab_size=len(tokenizer),
        max_source_length=max(len(pair.source) for pair in pairs),
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
        pairs: Sequence[EncodedPair],
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
        self.sampler = TokenBatchSampler(
            [len(pair.source) for pair in pairs],
            [len(pair.target) for pair in pairs],
            recipe.data.max_tokens,
            options.seed,
            options.gradient_accumulation_steps,
            accelerator.num_processes,
            accelerator.process_index,
        )
        # Any sequence is a data set to it, though its annotation says otherwise.
        self.loader: DataLoader = DataLoader(pairs, batch_sampler=self.sampler, collate_fn=self._collate)  # type: ignore
        optimizer = torch.optim.Adam(
            model.parameters(),
            lr=1.0,  # the schedule gives the rate itself, not a factor
            betas=(options.adam_beta1, options.adam_beta2),
            eps=options.adam_epsilon,
            fused=True,  # one pass over all parameters in place of one a parameter
        )
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        # Not prepared by Accelerate, which would advance it once for every process.
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, noam_lambda(model.config.d_model, options.warmup_steps, options.learning_rate_scale)
        )
        self.output_dir = Path(recipe.output.output_dir)
        self.step = 0
        self.interrupted = False
        self.started = time.monotonic()
        self.log = StepLog()

    def run(self) -> Path:
        """Trains to the end, averages, and writes the model folder."""
        self._prepare_output()
        self.model.train()
        with self._interruptible():
            self._train_steps()
        if self.step and checkpoint_folder(self.output_dir, self.step) not in list_checkpoints(self.output_dir):
            self._save_checkpoint()
        return self._finish()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """
        Ctrl-C ends training behind the update in progress, in all processes behind the same one, since it interrupts
        them in different places. A second Ctrl-C ends the program at once.
        """

        def interrupt(signal_number: int, frame: Any) -> None:
            self.interrupted = True
            signal.signal(signal.SIGINT, previous)

        previous = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
        if self.interrupted:
            self._tell(f"Interrupted after update {self.step}. Saving what has been learnt.")

    def _train_steps(self) -> None:
        output = self.recipe.output
        with self._progress_bar() as bar, logging_redirect_tqdm():
            for batches in self._grouped_batches():
                self._update_parameters(batches)
                self.step += 1
                bar.total = self._expected_steps()
                bar.update()
                if self.step % output.logging_steps == 0:
                    bar.set_postfix(self._log_training())
                if self.step % output.eval_steps == 0:
                    self._validate(num_beams=1)  # greedily: to see where training stands
                if self.step % output.save_steps == 0:
                    self._save_checkpoint()
                if self._is_over():
                    return

    def _grouped_batches(self) -> Iterator[list[Batch]]:
        """The batches of each update, as many as are accumulated."""
        batches = iter(self.loader)
        while True:
            yield list(islice(batches, self.recipe.optimization.gradient_accumulation_steps))

    def _update_parameters(self, batches: list[Batch]) -> None:
        """One update: the gradient of the mean loss over all target tokens of all batches of all processes."""
        batches = [{name: tensor.to(self.accelerator.device) for name, tensor in batch.items()} for batch in batches]
        tokens = self._sum_over_processes(sum(count_tokens(batch) for batch in batches))
        plain = torch.zeros((), device=self.accelerator.device)
        for number, batch in enumerate(batches, start=1):
            with self.accelerator.no_sync(self.model) if number < len(batches) else nullcontext():
                plain += self._backward(batch, tokens)
        if self.recipe.optimization.max_grad_norm is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.optimization.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.log.add(float(self._sum_over_processes(plain)), int(tokens))

    def _backward(self, batch: Batch, tokens: torch.Tensor) -> torch.Tensor:
        """Adds one batch's share to the gradient; returns its plain loss, summed over tokens."""
        logits = self.model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=self._unwrapped.prepare_decoder_input_ids_from_labels(batch["labels"]),
            use_cache=False,
        ).logits
        loss = smoothed_cross_entropy(logits, batch["labels"], self.recipe.optimization.label_smoothing)
        # Processes average their gradients, but `tokens` already counts those of all of them.
        self.accelerator.backward(loss.smoothed * self.accelerator.num_processes / tokens)
        return loss.plain

    def _validate(self, **generate_kwargs: Any) -> None:
        """Loss and scores on the validation pairs, logged. Decodes by the model's own defaults, the paper's."""
        if not self.validation_pairs:
            return
        self.model.eval()
        plain = tokens = 0.0
        with torch.no_grad():
            for batch in self.validation_batches[self.accelerator.process_index :: self.accelerator.num_processes]:
                batch = {name: tensor.to(self.accelerator.device) for name, tensor in batch.items()}
                logits = self._unwrapped(**batch).logits
                plain += float(smoothed_cross_entropy(logits, batch["labels"], smoothing=0.0).plain)
                tokens += count_tokens(batch)
        loss = float(self._sum_over_processes(plain)) / float(self._sum_over_processes(tokens))
        entry = {"step": self.step, "minutes": self._minutes(), "validation_loss": loss}
        if self.accelerator.is_main_process:
            entry |= self.evaluate(self._unwrapped, self.tokenizer, self.validation_pairs, **generate_kwargs)
        self.accelerator.wait_for_everyone()
        self.model.train()
        self._write_metrics(entry)
        self._tell(f"Validation: {describe(entry)}")

    def _log_training(self) -> dict[str, str]:
        """Appends a line to the metrics and returns what the progress bar shows."""
        rate = self.schedule.get_last_lr()[0]
        entry = {"step": self.step, "minutes": self._minutes(), **self.log.pop(), "learning_rate": rate}
        self._write_metrics(entry)
        return {"loss": f"{entry['loss']:.3f}", "tokens/s": f"{entry['tokens_per_second']:.0f}", "lr": f"{rate:.1e}"}

    def _write_metrics(self, entry: dict[str, Any]) -> None:
        if self.accelerator.is_main_process:
            with (self.output_dir / METRICS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def _prepare_output(self) -> None:
        if self.accelerator.is_main_process:
            self.output_dir.mkdir(parents=True, exist_ok=True)
            clear_output_dir(self.output_dir)
            (self.output_dir / METRICS_FILE).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()

    def _save_checkpoint(self) -> None:
        if self.accelerator.is_main_process:
            save_model_folder(self._unwrapped, self.tokenizer, checkpoint_folder(self.output_dir, self.step))
            delete_all_but_last(self.output_dir, self.recipe.output.average_checkpoints)
        self.accelerator.wait_for_everyone()

    def _finish(self) -> Path:
        """Averages the last checkpoints, scores the result and writes it to the output folder itself."""
        self.accelerator.wait_for_everyone()
        folders = list_checkpoints(self.output_dir)
        if not folders:
            raise ValueError("Training ended before its first update, so there is no model to save.")
        average_checkpoints(self._unwrapped, folders)
        self._tell(f"The final model is the mean of {len(folders)} checkpoints.")
        if self.accelerator.is_main_process:
            save_model_folder(self._unwrapped, self.tokenizer, self.output_dir)
            self._write_summary()
        self._validate()
        self.accelerator.end_training()
        return self.output_dir

    def _write_summary(self) -> None:
        """The recipe as it was run, beside the model."""
        recipe = {name: value for part in asdict(self.recipe).values() for name, value in part.items()}
        with written_aside(self.output_dir) as aside:
            (aside / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")

    def _tell(self, message: str) -> None:
        if self.accelerator.is_main_process:
            logger.info(message)

    def _progress_bar(self) -> tqdm:
        return tqdm(
            total=self.recipe.optimization.max_steps,
            desc="Training",
            unit="update",
            disable=not self.accelerator.is_local_main_process,
        )

    def _expected_steps(self) -> int:
        """Updates that there will have been at the end, as far as one can tell."""
        options = self.recipe.optimization
        if options.max_minutes is None:
            return options.max_steps
        return min(options.max_steps, max(self.step, round(self.step * options.max_minutes / self._minutes())))

    def _is_over(self) -> bool:
        minutes = self.recipe.optimization.max_minutes
        over = self.interrupted or self.step >= self.recipe.optimization.max_steps
        over = over or (minutes is not None and self._minutes() >= minutes)
        # Clocks and interrupts differ: all processes end when the first one does.
        return bool(self._sum_over_processes(float(over)))

    def _minutes(self) -> float:
        return (time.monotonic() - self.started) / 60.0

    def _sum_over_processes(self, value: float | torch.Tensor) -> torch.Tensor:
        tensor = torch.as_tensor(value, dtype=torch.float32, device=self.accelerator.device)
        return self.accelerator.reduce(tensor, reduction="sum")

    def _collate(self, pairs: Sequence[EncodedPair]) -> Batch:
        return collate(pairs, self.tokenizer.pad_token_id)

    def _validation_batches(self, pairs: Sequence[EncodedPair]) -> list[Batch]:
        by_length = sorted(pairs, key=lambda pair: len(pair.source))
        return [self._collate(by_length[first : first + 32]) for first in range(0, len(by_length), 32)]

    @property
    def _unwrapped(self) -> VanillaTransformerForConditionalGeneration:
        return self.accelerator.unwrap_model(self.model)


class StepLog:
    """Sums over the updates since it was last read."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.loss, self.tokens, self.since = 0.0, 0, time.monotonic()

    def add(self, plain_loss: float, tokens: int) -> None:
        """Counts one update: its plain loss in nats, summed over its target tokens."""
        self.loss += plain_loss
        self.tokens += tokens

    def pop(self) -> dict[str, float]:
        """Loss in nats a target token, perplexity and target tokens a second."""
        loss = self.loss / self.tokens
        speed = self.tokens / (time.monotonic() - self.since)
        self._reset()
        return {"loss": loss, "perplexity": math.exp(min(loss, 100.0)), "tokens_per_second": speed}


def describe(entry: dict[str, Any]) -> str:
    """One line for people: names and values of an entry of the metrics."""
    values = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in entry.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def count_tokens(batch: Batch) -> int:
    """Target tokens that have a label."""
    return int((batch["labels"] != IGNORED_LABEL).sum())
