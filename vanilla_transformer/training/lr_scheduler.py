"""The learning rate of section 5.3, and transformers' schedules by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

NOAM = "noam"  # equation 3, by its name in Tensor2Tensor
# Schedules whose rate depends on the last step.
NEED_MAX_STEPS = ("linear", "cosine", "cosine_with_restarts", "polynomial")
# The others of transformers need arguments that a recipe does not have.
ScheduleName = Literal[
    "noam",
    "inverse_sqrt",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
]
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)
# The values of a [`Schedule`] that each schedule does not use.
UNUSED = {name: set() if name == NOAM else {"learning_rate_scale"} for name in SCHEDULES}
UNUSED["constant"] |= {"warmup_steps"}
PAPER_MAX_STEPS = 100_000  # section 5.2, base model
PAPER_WARMUP_STEPS = 4000  # section 5.3


@dataclass(frozen=True)
class Schedule:
    """The length of a run and its learning rate, given by the recipe or derived from the corpus and
    the speed.

    Attributes:
        max_steps: Steps of the whole run, at whose end the linear and the cosine schedule reach 0.
        warmup_steps: Steps of linear growth.
        learning_rate_scale: Factor of equation 3; 1 in the paper.
    """

    max_steps: int = PAPER_MAX_STEPS
    warmup_steps: int = PAPER_WARMUP_STEPS
    learning_rate_scale: float = 1.0


def noam_lambda(d_model: int, warmup_steps: int, scale: float = 1.0) -> Callable[[int], float]:
    """Return equation 3 as a function: `d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)`,
    times `scale`.

    The function takes the number of finished steps, as `LambdaLR` counts them: its value at 0 is
    the rate of step 1.

    Args:
        d_model (`int`): Width of the model.
        warmup_steps (`int`): Steps of linear growth; the paper uses 4000.
        scale (`float`): 1 in the paper. Differs from the paper otherwise.
    """

    def rate(finished_steps: int) -> float:
        step = finished_steps + 1
        return scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    return rate


def create_lr_scheduler(
    name: str, optimizer: "Optimizer", d_model: int, schedule: Schedule
) -> "LRScheduler":
    """Create one of `SCHEDULES`: the paper's or one of transformers, to be advanced once after
    every step.

    Do not prepare it with Accelerate, which would advance it once per process.

    Args:
        optimizer: Its rate is 1 for the paper's schedule, which yields the rate itself, and the
            peak for the others.
    """
    from torch.optim.lr_scheduler import LambdaLR
    from transformers import get_scheduler

    if name == NOAM:
        return LambdaLR(
            optimizer, noam_lambda(d_model, schedule.warmup_steps, schedule.learning_rate_scale)
        )
    return get_scheduler(
        name,
        optimizer,
        num_warmup_steps=schedule.warmup_steps,
        num_training_steps=schedule.max_steps,
    )
