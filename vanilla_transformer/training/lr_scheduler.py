"""The learning rate of section 5.3, and those of transformers by name."""

from collections.abc import Callable

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from .arguments import PAPER_SCHEDULE


def noam_lambda(d_model: int, warmup_steps: int, scale: float = 1.0) -> Callable[[int], float]:
    """
    Equation 3: `d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)`, times `scale`.

    The returned function takes updates already made, as `LambdaLR` counts them, so that update n uses step n.

    Args:
        d_model (`int`): Width of the model.
        warmup_steps (`int`): Updates of linear growth; the paper has 4000.
        scale (`float`): 1 in the paper. Differs from the paper where it is not 1.
    """

    def rate(updates_made: int) -> float:
        step = updates_made + 1
        return scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    return rate


def make_schedule(
    name: str, optimizer: torch.optim.Optimizer, d_model: int, warmup_steps: int, max_steps: int, scale: float
) -> LRScheduler:
    """
    The paper's schedule, or one of transformers by its name (`transformers.get_scheduler`), to be advanced once behind
    every update. It must not be given to Accelerate, which would advance it once for every process.

    Args:
        optimizer: Its rate is 1 for the paper's schedule, which gives the rate itself, and the peak for the others.
        max_steps (`int`): Updates of the whole run, at whose end the linear and the cosine schedule reach 0.
    """
    if name == PAPER_SCHEDULE:
        return LambdaLR(optimizer, noam_lambda(d_model, warmup_steps, scale))
    from transformers import get_scheduler

    return get_scheduler(name, optimizer, num_warmup_steps=warmup_steps, num_training_steps=max_steps)
