"""What training changes: model, optimizer, LR schedule and EMA, and the progress of the run."""

import copy
import math
import time
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .averaging import ExponentialMovingAverage, load_weights
from .checkpoint import ResumeState, list_checkpoints
from .compilation import compile_regions, should_compile
from .device_batch import BatchPreparation, should_pack
from .distributed import full_tensor, send_as_bfloat16, shard_like, shard_model
from .lora import LoraAdapters
from .loss import ModelWithLoss, check_r_drop, create_loss_terms
from .lr_scheduler import NOAM, UNUSED, Schedule, create_lr_scheduler
from .metrics import StepMetrics, UnreadStep, peak_memory_gib, read_steps
from .ranking import Rank, choose_best
from .run_arguments import DERIVED, Recipe, flatten

_MOST_STEPS_BETWEEN, _USUAL_COUNT = 1000, 10  # validations, and checkpoints
_LEAST_COUNT = 5  # of them and of lines in the log, in a short run
_STEPS_BEFORE_ESTIMATE = 20  # the first ones take longer


@dataclass
class TrainProgress:
    """How far a run has come: everything but tensors that a restart needs to continue bit for
    bit.
    """

    step: int = 0
    minutes: float = 0.0
    # The validation of the best model, if there is one: its step, score, chrF and loss.
    best: list[dict[str, float]] = field(default_factory=list)
    validations_without_improvement: int = 0
    num_processes: int = 1
    recipe: dict[str, Any] = field(default_factory=dict)
    # Hashes of the data that must not change while the run is interrupted.
    data: dict[str, str] = field(default_factory=dict)
    # Whether the checkpoint exists only because the run was interrupted. The next one replaces it,
    # so that the final average covers the checkpoints that an uninterrupted run would have written.
    temporary: bool = False
    batch_sampler: dict[str, Any] = field(default_factory=dict)
    lr_scheduler: dict[str, Any] = field(default_factory=dict)
    grad_scaler: dict[str, Any] = field(default_factory=dict)
    step_metrics: dict[str, Any] = field(default_factory=dict)

    def record_rank(self, rank: Rank, metric: str, sentences: int) -> tuple[int, str]:
        """Compare the current step with the best one, and return the step of the better one and
        what decided.
        """
        rows = [
            *self.best[:1],
            {"step": self.step, "score": rank[0], "chrf": rank[1], "loss": -rank[2]},
        ]
        # Older releases stored the score alone, which a better one has to beat.
        ranks = [
            (row["score"], row.get("chrf", math.inf), -row.get("loss", -math.inf)) for row in rows
        ]
        index, reason = choose_best(ranks, metric, sentences)
        improved = rows[index]["step"] == self.step
        self.validations_without_improvement = (
            0 if improved else self.validations_without_improvement + 1
        )
        self.best = [rows[index]]
        return int(rows[index]["step"]), reason


class TrainState:
    """Model, optimizer, LR schedule and EMA, replicated (DDP) or sharded (FSDP2), with the progress
    of the run.

    Attributes:
        unwrapped_model: The model that is trained; with FSDP2 its parameters are sharded.
        wrapped_model: `model_with_loss` or, with several processes, DDP around it: the module that
            is called.
        step_metrics: Sums over the steps since the last line of the log.
        schedule: The length of the run and its learning rate, the paper's until they are derived.
        graphs: The `GraphedTrainStep` of a run whose steps are captured, or None.
        unread: Steps whose losses are still on the device and not in `step_metrics`.
        unfinished_checkpoint: The checkpoint that a thread may still be writing.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: VanillaTransformerForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        accelerator: Accelerator,
        data_hashes: dict[str, str],
    ):
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.accelerator = accelerator
        options, device = recipe.optimization, accelerator.device
        self.compiled = should_compile(options.compile, model.config, device)
        self.packing = should_pack(options.packing, model, self.compiled, device)
        self._wrap(model)
        in_graph = self.model_with_loss.loss_in_graph is not None
        self.batch_preparation = BatchPreparation.for_model(
            self.unwrapped_model, self.compiled, in_graph
        )
        # The paper's Adam (section 5.3). The paper's schedule sets the rate itself, not a factor of
        # it.
        optimizer = torch.optim.Adam(
            [
                parameter
                for parameter in self.unwrapped_model.parameters()
                if parameter.requires_grad
            ],
            lr=1.0 if options.lr_scheduler == NOAM else options.learning_rate or 0.0,
            betas=(0.9, 0.98),
            eps=1e-9,
            fused=True,  # one pass over all parameters instead of one per parameter
        )
        self.optimizer = accelerator.prepare(optimizer)
        self.ema: ExponentialMovingAverage | None = None
        if options.ema_decay is not None:
            trained: Any = self.unwrapped_model if self._adapters is None else self._adapters
            self.ema = ExponentialMovingAverage(dict(trained.named_parameters()), options.ema_decay)
        self.progress = TrainProgress(
            num_processes=accelerator.num_processes, recipe=flatten(recipe), data=data_hashes
        )
        derived = {name: getattr(recipe.optimization, name) for name in DERIVED}
        self.follow_schedule(
            Schedule(**{name: value for name, value in derived.items() if value is not None})
        )
        self.graphs: Any = None
        self.step_metrics = StepMetrics()
        self.unread: list[UnreadStep] = []
        self.unfinished_checkpoint: Future[None] | None = None
        self._started = time.monotonic()

    def steps_between(self, name: str) -> int:
        """Return `logging_steps`, `eval_steps` or `save_steps`.

        The recipe's, but a fifth of the run if that is less: for the log, and for a run that time
        ends before the first. Without one in the recipe, a tenth of the run, at most 1,000.
        """
        steps = getattr(self.recipe.output, name)
        if steps is None:
            return max(1, min(_MOST_STEPS_BETWEEN, self.planned_steps // _USUAL_COUNT))
        is_short = self.recipe.optimization.max_minutes is not None and steps > self.planned_steps
        return (
            min(steps, max(1, self.planned_steps // _LEAST_COUNT))
            if is_short or name == "logging_steps"
            else steps
        )

    def follow_schedule(self, schedule: Schedule, planned_steps: int | None = None) -> None:
        """Create the LR schedule of the run, and record it with the recipe.

        Args:
            planned_steps: The steps that fit into `max_minutes`, by the speed of this machine.
        """
        unused = UNUSED[self.recipe.optimization.lr_scheduler]
        used = {name: value for name, value in asdict(schedule).items() if name not in unused}
        self.schedule = schedule
        self.progress.recipe = self.progress.recipe | used
        self.planned_steps = schedule.max_steps if planned_steps is None else planned_steps
        self.lr_scheduler = create_lr_scheduler(
            self.recipe.optimization.lr_scheduler,
            self.optimizer.optimizer,
            self.unwrapped_model.config.d_model,
            schedule,
        )

    def _wrap(self, model: VanillaTransformerForConditionalGeneration) -> None:
        # Without memory; with FSDP2 only, whose models do not decode.
        self._skeleton: VanillaTransformerForConditionalGeneration | None = None
        options = self.recipe.optimization
        terms = create_loss_terms(self.recipe, model.config)
        if options.fsdp:
            self._skeleton = copy.deepcopy(model).to("meta")
        rank = self.recipe.fine_tuning.lora_rank
        self._adapters = None if rank is None else LoraAdapters(model, rank)
        check_r_drop(options.r_drop_weight, model.config)
        model_with_loss = ModelWithLoss(
            model, options.label_smoothing, terms, options.r_drop_weight
        )
        if self.compiled:
            compile_regions(model_with_loss, self.accelerator.device, self.packing)
        if options.fsdp:
            shard_model(
                model_with_loss.to(self.accelerator.device),
                self.accelerator.num_processes,
                self.accelerator.mixed_precision,
            )
            self.wrapped_model: torch.nn.Module = model_with_loss
            self.model_with_loss = model_with_loss
        else:
            self.wrapped_model = self.accelerator.prepare(model_with_loss)
            self.model_with_loss = self.accelerator.unwrap_model(self.wrapped_model)
        compresses = options.gradient_compression is not None
        if compresses and isinstance(self.wrapped_model, DistributedDataParallel):
            self.wrapped_model.register_comm_hook(torch.distributed.group.WORLD, send_as_bfloat16)
        self.unwrapped_model = self.model_with_loss.model

    @property
    def step(self) -> int:
        return self.progress.step

    def minutes(self) -> float:
        """Return the minutes of training, over all restarts."""
        return (time.monotonic() - self._started) / 60.0

    def read_steps(self) -> None:
        """Wait for the device, and add the losses of `unread` to `step_metrics`.

        All processes call it together.
        """
        unread, self.unread = self.unread, []
        for step, (sums, finite_gradient) in zip(
            unread, read_steps(self.accelerator, unread), strict=True
        ):
            finite_loss = math.isfinite(sums.smoothed_loss)
            # With a scaler, a gradient that is not finite lowers the scale.
            if not finite_loss or not (finite_gradient or self.accelerator.scaler):
                what = "gradient of" if finite_loss else "loss of"
                value = "not finite" if finite_loss else sums.smoothed_loss
                pairs = (np.concatenate(step.pairs) + 1).tolist()  # as a user counts them
                raise FloatingPointError(
                    f"The {what} step {step.step} is {value}, so training stops. The last good "
                    f"checkpoint is {self.last_checkpoint() or 'none'}. Try a lower learning rate, "
                    "a longer warm-up or --max_grad_norm 1. This process contributed pairs "
                    f"{', '.join(map(str, pairs))} after cleaning."
                )
            self.step_metrics.add(sums)

    def last_checkpoint(self) -> Path | None:
        """Return the last complete checkpoint of the run, after waiting for one that is being
        written.
        """
        if self.unfinished_checkpoint is not None:
            wait([self.unfinished_checkpoint])
        saved = list_checkpoints(self.recipe.output.output_dir)
        return saved[-1] if saved else None

    def is_finished(self, saved: bool) -> bool:
        """Check steps, minutes and patience. Processes may disagree, since their clocks differ.

        Args:
            saved: Whether a checkpoint holds this step: its minutes count, and a run that resumes
                from it agrees.
        """
        minutes = self.progress.minutes if saved else self.minutes()
        options = self.recipe.optimization
        patience = self.recipe.optimization.early_stopping_patience
        return (
            self.step >= self.schedule.max_steps
            or (options.max_minutes is not None and minutes >= options.max_minutes)
            or (patience is not None and self.progress.validations_without_improvement >= patience)
        )

    def expected_steps(self) -> int:
        """Estimate at which step training will end, from `max_steps` and `max_minutes`."""
        minutes = self.recipe.optimization.max_minutes
        if minutes is None or self.step < _STEPS_BEFORE_ESTIMATE:
            return max(self.planned_steps, self.step)
        return min(
            self.schedule.max_steps, max(self.step, round(self.step * minutes / self.minutes()))
        )

    def measure_steps(self, gradient_norm: torch.Tensor, **position: float) -> dict[str, Any]:
        """Return an entry for the log of the steps since the last call, for which all processes
        read the device.

        Args:
            position: Place in the data where the run is, such as its epoch.
        """
        self.read_steps()
        entry: dict[str, Any] = {"step": self.step, **position, "minutes": self.minutes()}
        entry |= self.step_metrics.pop() | {"learning_rate": self.lr_scheduler.get_last_lr()[0]}
        entry |= {
            "gradient_norm": float(gradient_norm),
            "peak_memory_gib": peak_memory_gib(self.accelerator.device),
        }
        return entry

    def gather_model(self, to_save: bool = False) -> VanillaTransformerForConditionalGeneration:
        """Return a model with the current weights that one process can decode with.

        With FSDP2 it is a new, unsharded copy, and with LoRA a copy with merged adapters; drop it
        after use. All processes must call this method together.

        Args:
            to_save: Put the copy on the CPU of the main process; the others get one without
                weights.
        """
        if self._adapters is not None:
            return self._adapters.merge()
        if self._skeleton is None:
            return self.unwrapped_model
        options = StateDictOptions(full_state_dict=True, cpu_offload=to_save)
        weights: Any = get_model_state_dict(self.unwrapped_model, options=options)
        if to_save and not self.accelerator.is_main_process:
            return self._skeleton
        model = copy.deepcopy(self._skeleton).to_empty(
            device="cpu" if to_save else self.accelerator.device
        )
        model.tie_weights()
        load_weights(model, weights)
        return model

    def load_ema(self, model: VanillaTransformerForConditionalGeneration) -> None:
        """Load the EMA into a model from [`gather_model`].

        All processes must call this together.
        """
        assert self.ema is not None
        average = {
            name: full_tensor(tensor).cpu() for name, tensor in self.ema.state_dict().items()
        }
        load_weights(
            model, average if self._adapters is None else self._adapters.merge(average).state_dict()
        )

    def resume_state(self) -> ResumeState:
        """Return the state that a checkpoint holds beside the model. All processes must call it
        together.

        It reads all steps, so that no checkpoint holds a loss that was not finite. The tensors are
        the run's own.
        """
        self.read_steps()
        optimizer: Any = get_optimizer_state_dict(self.unwrapped_model, self.optimizer.optimizer)
        state = optimizer.get("state", {})
        tensors = {
            f"{name}.{kind}": tensor
            for name, kinds in state.items()
            for kind, tensor in kinds.items()
        }
        ema = {} if self.ema is None else self.ema.state_dict()
        adapters = {} if self._adapters is None else self._adapters.state_dict()
        self.progress.minutes = self.minutes()
        self.progress.lr_scheduler = self.lr_scheduler.state_dict()
        self.progress.step_metrics = self.step_metrics.state_dict()
        if self.accelerator.scaler is not None:
            self.progress.grad_scaler = self.accelerator.scaler.state_dict()
        return ResumeState(
            asdict(self.progress), optimizer.get("param_groups", []), tensors, ema, adapters
        )

    def load_resume_state(self, state: ResumeState, full: bool) -> None:
        """Continue where `state` was saved. The model must have the weights of the same checkpoint.

        Args:
            full: Whether the tensors of `state` are full; otherwise they are sharded as this model
                is.
        """
        optimizer: dict[str, Any] = {"state": {}, "param_groups": state.param_groups}
        for name, tensor in state.optimizer.items():
            parameter, _, kind = name.rpartition(".")
            optimizer["state"].setdefault(parameter, {})[kind] = tensor
        options = StateDictOptions(full_state_dict=full)
        set_optimizer_state_dict(
            self.unwrapped_model, self.optimizer.optimizer, optimizer, options=options
        )
        if self._adapters is not None:
            self._adapters.load_state_dict(state.adapters)
        if self.ema is not None and state.ema:
            average = self.ema.state_dict()
            self.ema.load_state_dict(
                {name: shard_like(t, average[name]) for name, t in state.ema.items()}
            )
        kept: dict[str, Any] = {
            "recipe": self.progress.recipe,
            "data": self.progress.data,
            "temporary": False,
        }
        kept["num_processes"] = self.accelerator.num_processes
        self.progress = TrainProgress(**state.progress | kept)
        self.lr_scheduler.load_state_dict(self.progress.lr_scheduler)
        self.step_metrics.load_state_dict(self.progress.step_metrics)
        if self.accelerator.scaler is not None and self.progress.grad_scaler:
            self.accelerator.scaler.load_state_dict(self.progress.grad_scaler)
        self._started = time.monotonic() - 60.0 * self.progress.minutes

    def close(self) -> None:
        """Close trackers and the process group.

        DDP is released first. As the last holder of the process group it would destroy the group
        while holding Python's lock, for which the group's own thread may be waiting (torch 2.13).
        """
        self.wrapped_model = self.model_with_loss
        self.accelerator.free_memory()
        self.accelerator.end_training()
