"""What learns: a model with its optimizer, schedule and moving average, in one piece or spread over processes."""

import copy

import torch
from accelerate import Accelerator

from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import PAPER_SCHEDULE, OptimizationArguments
from .averaging import ExponentialMovingAverage, load_weights
from .checkpoint import Progress, TrainingState
from .loss import Objective
from .lr_scheduler import make_schedule
from .sharding import like, load_optimizer_state, shard_model, whole_optimizer_state, whole_tensor, whole_weights


class Learner:
    """
    All that an update changes. `core` is the model, `objective` its loss, `prepared` that in Accelerate's wrapping,
    which is what is called; `whole` a model that a single process can decode with: the core itself, or a copy that the
    shards of all processes are gathered into.
    """

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        options: OptimizationArguments,
        accelerator: Accelerator,
    ):
        self.accelerator = accelerator
        self._place(model, options)
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
        self.ema: ExponentialMovingAverage | None = None
        if options.ema_decay is not None:
            self.ema = ExponentialMovingAverage(dict(self.core.named_parameters()), options.ema_decay)

    def _place(self, model: VanillaTransformerForConditionalGeneration, options: OptimizationArguments) -> None:
        objective = Objective(model, options.label_smoothing)
        if options.fsdp:
            self.whole = copy.deepcopy(model).to(self.accelerator.device)
            shard_model(objective.to(self.accelerator.device), self.accelerator.num_processes)
            self.prepared: torch.nn.Module = objective
            self.objective = objective
            self.core = objective.core
        else:
            self.prepared = self.accelerator.prepare(objective)
            self.objective = self.accelerator.unwrap_model(self.prepared, keep_torch_compile=False)
            self.core = self.whole = self.objective.core

    def _make_optimizer(self, options: OptimizationArguments) -> torch.optim.Optimizer:
        """The paper's Adam. Its schedule gives the rate itself, not a factor."""
        return torch.optim.Adam(
            self.core.parameters(),
            lr=1.0 if options.lr_scheduler == PAPER_SCHEDULE else options.learning_rate or 0.0,
            betas=(options.adam_beta1, options.adam_beta2),
            eps=options.adam_epsilon,
            fused=True,  # one pass over all parameters in place of one a parameter
        )

    def step(self) -> None:
        """Changes the parameters by the gradient that has been gathered, and forgets it."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        if self.ema is not None:
            self.ema.update()

    def whole_model(self) -> VanillaTransformerForConditionalGeneration:
        """The present weights in one piece. All processes must ask for it together, as for what follows."""
        if self.whole is not self.core:
            load_weights(self.whole, whole_weights(self.core))
        return self.whole

    def whole_ema(self) -> dict[str, torch.Tensor]:
        """The moving average in one piece, if there is one."""
        return {} if self.ema is None else {name: whole_tensor(t).cpu() for name, t in self.ema.state_dict().items()}

    def end(self) -> None:
        """
        Ends what processes and trackers have in common. DDP goes first: it would be the last to hold the processes'
        group, and end it with Python's lock held, for which the group's own thread may be waiting (in torch 2.13).
        """
        self.prepared = self.objective
        self.accelerator.free_memory()
        self.accelerator.end_training()

    def complete(self, progress: Progress) -> None:
        """Enters what is no tensor."""
        progress.schedule = self.schedule.state_dict()
        if self.accelerator.scaler is not None:
            progress.scaler = self.accelerator.scaler.state_dict()

    def training_state(self, progress: Progress) -> TrainingState:
        """What a checkpoint of this place holds beside the model, in one piece."""
        return TrainingState(progress, whole_optimizer_state(self.core, self.optimizer.optimizer), self.whole_ema())

    def load_training_state(self, state: TrainingState) -> None:
        """Goes on where a state was taken. The model has been given its weights already."""
        load_optimizer_state(self.core, self.optimizer.optimizer, state.optimizer)
        self.schedule.load_state_dict(state.progress.schedule)
        if self.ema is not None and state.ema:
            average = self.ema.state_dict()
            self.ema.load_state_dict({name: like(tensor, average[name]) for name, tensor in state.ema.items()})
        if self.accelerator.scaler is not None and state.progress.scaler:
            self.accelerator.scaler.load_state_dict(state.progress.scaler)
