"""The learning rate of section 5.3."""

from collections.abc import Callable


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
