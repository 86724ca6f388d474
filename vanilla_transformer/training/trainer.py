"""The training loop (section 5 of the paper), on one process or several."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.corpus import Corpus
from vanilla_transformer.data.data_arguments import stages
from vanilla_transformer.data.data_loader import MicroBatchLoader, report_lost_workers
from vanilla_transformer.data.prepare_data import REPORT_FILE, load_texts, tokenize
from vanilla_transformer.data.stages import Stages
from vanilla_transformer.data.tokenizer_training import (
    check_same_on_all_processes,
    hash_data,
    load_or_train_tokenizer,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.cores import check_threads, limit_onednn_cache, use_all_cores
from vanilla_transformer.machine.imports import show_progress
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .averaging import average_checkpoints, check_whole
from .checkpoint import checkpoint_folder, list_checkpoints, load_progress
from .compilation import choose_padding, uncompiled
from .distributed import (
    create_accelerator,
    first_of_each_node,
    is_main_process,
    report_lost_processes,
    wait_for_processes,
)
from .lr_scheduler import PAPER_MAX_STEPS
from .metrics import CURVE, METRICS_FILE, MetricsLogger
from .model_creation import ModelClass, create_model
from .ranking import choose_best, rank
from .run_arguments import PADDING, Recipe
from .run_folder import EMA, RunFolder, lock_output_dir
from .schedule import plan_schedule
from .signals import StopSignal, TrainingInterrupted
from .train_state import TrainState
from .train_step import compile_train_step, explain_out_of_memory, train_step
from .validation import Evaluator, Validation, Validations, loss_only

logger = logging.getLogger(__name__)

_MOVING_AVERAGE = "moving average"


def train(
    recipe: Recipe,
    evaluate: Evaluator | None = None,
    model_class: ModelClass | None = None,
) -> Path:
    """Train a model as `recipe` describes and return its folder, with pictures of the loss, the
    scores and the text.

    Progress is logged, and printed unless the caller has configured `logging` otherwise.

    The final model is the mean of the last checkpoints (section 6.1), or the last one or the moving
    average if that has a better validation score. Its `generate()` decodes as the paper does.
    Training resumes from the last checkpoint if the folder holds a run of the same recipe, and
    returns at once if that run is finished.

    Args:
        evaluate: Scores the model on the validation pairs, at every validation and at the end; by
            default by BLEU, chrF and the recipe's `best_metric`. `loss_only` leaves validation to
            the loss.
        model_class: Class of the model, whose `config_class` takes the recipe's fields; by default
            the recipe's.

    Raises:
        ValueError, OSError: the recipe or its files cannot work; nothing has been written.
        TrainingInterrupted: SIGINT or SIGTERM; a checkpoint has been written.
        ChildProcessError: a process that prepares batches was killed.
        LostProcessError: another process of the run was killed or has failed.
        FloatingPointError: the loss is not finite; the text names the step, its sentences and the
            last checkpoint.
    """
    if evaluate is None:
        from vanilla_transformer.evaluation.scores import evaluator_for

        evaluate = evaluator_for(recipe.output.best_metric, recipe.output.eval_examples)
    with apply_settings(recipe.optimization.threads), lock_output_dir(recipe.output.output_dir):
        run = RunFolder(recipe)
        if run.finished:
            if is_main_process():
                run.restore_best_models()
            logger.info(
                "The run in %s is finished. Raise max_steps or max_minutes to continue it.",
                run.path,
            )
        else:
            with closing(run):
                _train(prepare_run(recipe, run, evaluate, model_class))
            if is_main_process():
                from vanilla_transformer.evaluation.plots import (
                    draw_picture,
                    plot_learning_curve,
                    plot_lengths,
                )

                draw_picture(
                    "learning curve is",
                    plot_learning_curve,
                    run.path / METRICS_FILE,
                    run.path / CURVE,
                )
                draw_picture(
                    "lengths are", plot_lengths, run.path / REPORT_FILE, run.path / "lengths.png"
                )
        return run.path


@contextmanager
def apply_settings(threads: int | None) -> Iterator[None]:
    """Log progress, compute in so many threads or in all cores, and report lost processes in one
    line.
    """
    if threads is None:
        use_all_cores()
    else:
        torch.set_num_threads(check_threads(threads))
    with show_progress(), report_lost_processes():
        yield


def _train(prepared: "PreparedRun") -> None:
    """Run the training loop to its end, and write the final model."""
    run, state, batches = prepared.run, prepared.state, prepared.batches
    run.start(state, batches.sampler.corpus)
    metrics = MetricsLogger(
        run.path, state.accelerator, state.progress.recipe, (state.step, state.expected_steps())
    )
    # `steps` are without end, epoch after epoch.
    lost_workers = report_lost_workers("The same command resumes from the last checkpoint.")
    with (
        StopSignal(state.accelerator) as stop,
        metrics,
        lost_workers,
        closing(iter(batches)) as steps,
    ):
        if state.recipe.fine_tuning.init_from is not None and not state.step:
            _validate(prepared, state.gather_model(), metrics, num_beams=1)
        stage = None
        while not stop.check(
            state.step, state.is_finished(run.is_saved(state)), at_once=_is_milestone(state)
        ):
            micro_batches = next(steps)
            if (
                batches.position.stage != stage
                and len(batches.sampler.stages) > 1
                and state.accelerator.is_main_process
            ):
                stage = batches.position.stage
                logger.info("Step %d: %s.", state.step + 1, batches.sampler.stages.describe(stage))
            # Forward, backward, clip, Adam, LR schedule, EMA
            norm = train_step(state, micro_batches)
            metrics.advance(state.expected_steps())
            if state.step % state.steps_between("logging_steps") == 0:
                metrics.log_steps(state.measure_steps(norm, **batches.place()))
            if state.step % state.steps_between("eval_steps") == 0:
                state.read_steps()  # a model is validated and kept only if no loss was bad
                entry = _validate(prepared, state.gather_model(), metrics, num_beams=1)
                run.keep_best(state, entry, len(prepared.validation.pairs))
            if run.checkpoint_due(state, together=stop.due(state.step)):
                run.save_checkpoint(state, batches)
    if state.step and not run.is_saved(state):
        run.save_checkpoint(state, batches, temporary=stop.interrupted)
    run.finish_saving()
    if not stop.interrupted:
        _finish(prepared, metrics)
        return
    state.close()
    if not state.step:
        raise TrainingInterrupted("Interrupted before the first step. There is nothing to save.")
    raise TrainingInterrupted(
        f"Interrupted after step {state.step}. The same command resumes from "
        f"{checkpoint_folder(run.path, state.step)}, which is also a usable model."
    )


def _is_milestone(state: TrainState) -> bool:
    """Return whether a run can end with the current step by a limit other than time."""
    return (
        state.step >= state.schedule.max_steps
        or state.step % state.steps_between("eval_steps") == 0
    )


@dataclass(frozen=True)
class PreparedRun:
    """What training needs, read and created; nothing is written yet."""

    run: RunFolder
    state: TrainState
    batches: MicroBatchLoader
    validation: Validations


def prepare_run(
    recipe: Recipe,
    run: RunFolder,
    evaluate: Evaluator = loss_only,
    model_class: ModelClass | None = None,
) -> PreparedRun:
    """Read the data and create the model of a recipe, and restore the run that its folder holds;
    see [`train`].
    """
    limit_onednn_cache()
    resumed = None if run.checkpoint is None else load_progress(run.checkpoint)
    accelerator = create_accelerator(recipe)
    planned = stages(recipe.data, recipe.optimization.max_steps or PAPER_MAX_STEPS)
    initial_model = None
    with first_of_each_node(accelerator):
        texts = load_texts(recipe.data)
        if recipe.fine_tuning.init_from is None:
            tokenizer = load_or_train_tokenizer(texts, run.checkpoint)
        else:
            from .initialization import load_initial_model

            initial_model, tokenizer = load_initial_model(recipe, texts, run.checkpoint)
        corpus = tokenize(texts, tokenizer, recipe.optimization.seed, stages=planned)
    hashes = hash_data(texts)
    check_same_on_all_processes(tokenizer, hashes)
    model = create_model(
        recipe,
        tokenizer,
        corpus.max_source_length,
        checkpoint=run.checkpoint,
        initial=initial_model,
        mixed_precision=accelerator.mixed_precision,
        model_class=model_class,
    )
    # The scripts of the sources, also of former training, by which a source of another one has a
    # warning.
    limits = getattr(model.config, "warning_limits", None) or {}
    scripts = {*limits.get("source_scripts", ()), *texts.source_scripts()}
    model.config.warning_limits = limits | {"source_scripts": sorted(scripts)}
    validation = Validations(
        texts,
        lambda pairs, direction: Validation(
            pairs, tokenizer, evaluate, accelerator, recipe.data.max_tokens, direction
        ),
    )
    if (
        recipe.optimization.early_stopping_patience is not None
        and not validation.pairs
        and is_main_process()
    ):
        logger.warning(
            "`early_stopping_patience` has no effect without validation text. Add some, or leave "
            "it out."
        )
    state = TrainState(recipe, model, tokenizer, accelerator, hashes)
    before = {} if resumed is None else resumed["recipe"]
    state.progress.recipe[PADDING] = choose_padding(before, state.compiled)
    batches = _create_batches(state, corpus, planned)
    state.wrapped_model.train()
    if state.compiled:
        with batches.preview() as steps:
            compile_train_step(state, steps)
    plan_schedule(state, batches, resumed)
    run.restore(state, batches)
    if accelerator.device.type == "cuda":
        from .graphed_train_step import capture_steps

        capture_steps(state)
    return PreparedRun(run, state, batches, validation)


def _create_batches(state: TrainState, corpus: Corpus, planned: Stages) -> MicroBatchLoader:
    """Return the batches of this process, which workers prepare for a GPU."""
    options, accelerator = state.recipe.optimization, state.accelerator
    sampler = TokenBudgetBatchSampler(
        corpus,
        state.recipe.data.max_tokens,
        options.seed,
        accumulation=options.gradient_accumulation_steps,
        num_replicas=accelerator.num_processes,
        rank=accelerator.process_index,
        pad_to_multiple_of=state.progress.recipe[PADDING],
        stages=planned,
        packing=state.packing,
    )
    on_gpu = accelerator.device.type == "cuda"
    workers = options.dataloader_num_workers
    return MicroBatchLoader(
        sampler,
        state.tokenizer.pad_token_id,
        num_workers=int(on_gpu) if workers is None else workers,
        pin_memory=on_gpu,
        prepare=state.batch_preparation,
    )


def _validate(
    prepared: PreparedRun,
    model: VanillaTransformerForConditionalGeneration,
    metrics: MetricsLogger | None = None,
    **generate_kwargs: Any,
) -> dict[str, Any]:
    """Return loss and scores of a model, and log them.

    Without validation pairs the entry is empty.
    """
    state, validation = prepared.state, prepared.validation
    if not validation.pairs:
        return {}
    entry = {"step": state.step, "minutes": state.minutes()}
    with explain_out_of_memory(state, "Validation", state.step), uncompiled(model):
        entry |= validation.measure(model, **generate_kwargs)
    if metrics is not None:
        metrics.log_validation(entry)
    return entry


def _finish(prepared: PreparedRun, metrics: MetricsLogger) -> None:
    """Write the final model to the run's folder: the mean of the last checkpoints (section 6.1).

    If the last checkpoint alone or the moving average has a better validation score, it is the
    final model instead.
    """
    run, state = prepared.run, prepared.state
    wait_for_processes(state.accelerator)
    if state.step < state.schedule.warmup_steps and state.accelerator.is_main_process:
        logger.warning(
            "Training ended after step %d, within its warm-up of %d steps: the learning rate never "
            "reached its peak. Lower `warmup_steps`, or leave it out.",
            state.step,
            state.schedule.warmup_steps,
        )
    checkpoints = list_checkpoints(run.path)[-run.options.average_checkpoints :]
    if not checkpoints:
        hint = "Raise `max_minutes` or `max_steps`."
        raise UserError(
            f"Training ended before its first step, so there is no model to save. {hint}"
        )
    if state.accelerator.is_main_process:
        check_whole(checkpoints)
    wait_for_processes(state.accelerator)  # or the others would load what may be damaged
    model = state.gather_model()
    _load_final_weights(prepared, metrics, model, checkpoints)
    run.save_model(state, model)
    state.close()


def _load_final_weights(
    prepared: PreparedRun,
    metrics: MetricsLogger,
    model: VanillaTransformerForConditionalGeneration,
    checkpoints: list[Path],
) -> None:
    """Load the mean of the checkpoints, the last one or the moving average: the first one with the
    best score.
    """
    run, state = prepared.run, prepared.state
    candidates: dict[str, Callable[[], None]] = {}
    if len(checkpoints) > 1:
        candidates["mean of checkpoints"] = partial(average_checkpoints, model, checkpoints)
    candidates["last checkpoint"] = partial(average_checkpoints, model, checkpoints[-1:])
    if state.ema is not None:
        candidates[_MOVING_AVERAGE] = partial(state.load_ema, model)
    entries, minutes = dict[str, dict[str, Any]](), state.minutes()
    for name, load in candidates.items():
        load()
        if name == _MOVING_AVERAGE:
            run.save_model(state, model, EMA)
        entry = _validate(prepared, model)
        entries[name] = entry | {"model": name, "minutes": minutes} if entry else {}
    ranks = [rank(entries[name], run.options.best_metric) for name in candidates]
    index, reason = choose_best(ranks, run.options.best_metric, len(prepared.validation.pairs))
    final = [*candidates][index]
    candidates[final]()
    entries[final] = entries.pop(final)  # the last entry of the log is the final model's
    for entry in filter(None, entries.values()):
        metrics.log_validation(entry)
    if state.accelerator.is_main_process:
        said = f", by validation {reason}" if len(entries) > 1 and entries[final] else ""
        logger.info("The final model is the %s%s.", final, said)
