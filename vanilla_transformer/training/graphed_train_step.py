"""
The work of a training step on a GPU as CUDA graphs: the gradient of a micro-batch, and the update
of the weights.

Packed batches have one shape. So the host copies a batch to the place of the one before, seeds
dropout, replays the gradient for each micro-batch, and replays the update. The first steps of a
shape run as usual: they allocate the gradients and the moments of Adam, and choose kernels. A batch
of a rare shape runs so, too.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vanilla_transformer.data.batches import Batch
from vanilla_transformer.machine.cuda_graphs import WARM_UPS, Capture, CudaGraphs
from vanilla_transformer.machine.transfers import pin
from vanilla_transformer.user_input.reasons import first_line

from .train_state import TrainState
from .train_step import add_gradient, update

logger = logging.getLogger(__name__)
_MOST_SHAPES = 4  # whose batches are kept on the device
# Tensors of the device, and numbers that differ from step to step, by name.
Inputs = Mapping[str, Tensor | float]


class GraphedTrainStep:
    """
    The gradient and the update of a run, with the interface of the functions of the same names in
    `train_step`.

    Args:
        state: State of the run. Its gradients keep their addresses from now on.
        capture: Captures a function.
    """

    def __init__(self, state: TrainState, capture: Capture):
        self._state, device = state, state.accelerator.device
        self._add = {
            first: GraphedFunction(partial(self._add_gradient, first), device, capture)
            for first in (True, False)
        }
        self._update = GraphedFunction(self._update_at_rates, device, capture)
        state.graphs = self

    def add_gradient(self, batch: Batch, factor: float, first: bool) -> Tensor:
        """Add a batch on the CPU to the gradient, or replace it by the `first` one of a step.

        See [`train_step.add_gradient`].
        """
        return self._add[first]({**batch, "factor": factor})

    def update(self) -> tuple[Tensor, Tensor]:
        """Update the weights; see [`train_step.update`]."""
        rates = {
            str(number): float(group["lr"])
            for number, group in enumerate(self._state.optimizer.param_groups)
        }
        norm, finite = self._update(rates).unbind()
        return norm, finite

    def _add_gradient(self, first: bool, inputs: Mapping[str, Tensor]) -> Tensor:
        """Copy a gradient to the one before it, or add it, by one operation instead of one for each
        parameter.
        """
        parameters = [
            parameter
            for group in self._state.optimizer.param_groups
            for parameter in group["params"]
        ]
        before = {
            parameter: parameter.grad for parameter in parameters if parameter.grad is not None
        }
        for parameter in before:
            parameter.grad = None
        batch = {name: tensor for name, tensor in inputs.items() if name != "factor"}
        loss = add_gradient(self._state, batch, inputs["factor"])
        pairs = [
            (gradient, parameter.grad)
            for parameter, gradient in before.items()
            if parameter.grad is not None
        ]
        if pairs:
            combine: Any = torch._foreach_copy_ if first else torch._foreach_add_
            combine(*map(list, zip(*pairs, strict=True)))
        for parameter, gradient in before.items():
            if first and parameter.grad is None:
                gradient.zero_()
            parameter.grad = gradient
        return loss

    def _update_at_rates(self, rates: Mapping[str, Tensor]) -> Tensor:
        """Let the optimizer take its learning rates from tensors, and restore the numbers for
        checkpoints.
        """
        groups = self._state.optimizer.param_groups
        before = [(group["lr"], group["capturable"]) for group in groups]
        try:
            for group, rate in zip(groups, rates.values(), strict=True):
                group["lr"] = rate
                group["capturable"] = rate.device.type == "cuda"
            return torch.stack(update(self._state))
        finally:
            for group, (number, capturable) in zip(groups, before, strict=True):
                group["lr"], group["capturable"] = number, capturable


class GraphedFunction:
    """
    A function of tensors of a device, which is captured once its inputs have had the same shapes a
    few times.

    Args:
        function: Returns a tensor, of inputs at fixed addresses. It reads no value.
        capture: Captures a function.
    """

    def __init__(
        self,
        function: Callable[[Mapping[str, Tensor]], Tensor],
        device: torch.device,
        capture: Capture,
    ):
        self._function, self._device, self._capture = function, device, capture
        self._forms: dict[Any, _Form] = {}

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return the result for inputs, whose tensors may be on the CPU."""
        shapes = tuple(value.shape for value in inputs.values() if isinstance(value, Tensor))
        form = self._forms.get(shapes)
        if form is None:
            form = _Form(
                {
                    name: torch.empty_like(torch.as_tensor(value), device=self._device)
                    for name, value in inputs.items()
                }
            )
        if len(self._forms) < _MOST_SHAPES:
            self._forms[shapes] = form
        for name, value in inputs.items():
            if isinstance(value, Tensor):
                form.inputs[name].copy_(pin(value, self._device), non_blocking=True)
            else:
                form.inputs[name].fill_(value)
        if form.runs == WARM_UPS:

            def run(inputs: Mapping[str, Tensor] = form.inputs, result: Any = form.result) -> None:
                result.copy_(self._function(inputs))

            try:
                form.replay = self._capture(run, lambda: None)
            except Exception as error:  # of the driver or the allocator
                reason = first_line(error)
                logger.warning(
                    "Capturing a CUDA graph failed, so training steps are not captured: %s.", reason
                )
        form.runs += 1
        if form.replay is None:
            result = self._function(form.inputs)
            form.result = torch.empty_like(result) if form.result is None else form.result
            return result
        form.replay()
        return form.result.clone()  # type: ignore[union-attr]  # the next replay overwrites it


@dataclass
class _Form:
    """Inputs of some shapes at fixed addresses, the place of the result, and what replays the
    function on them.
    """

    inputs: Mapping[str, Tensor]
    result: Tensor | None = None
    replay: Callable[[], Any] | None = None
    runs: int = 0


def capture_steps(state: TrainState) -> None:
    """Let the steps of a run on a GPU of CUDA be captured, or log why they are not."""
    device = state.accelerator.device
    if device.type != "cuda":
        return
    obstacles = {
        "several processes": state.accelerator.num_processes > 1 or state.recipe.optimization.fsdp,
        "a gradient scaler": state.accelerator.scaler is not None,
        "batches of many shapes": not state.packing,
        "a loss that is not compiled": state.model_with_loss.loss_in_graph is None,
    }
    obstacle = next((name for name, applies in obstacles.items() if applies), None)
    if obstacle is None:
        GraphedTrainStep(state, CudaGraphs(device))
    elif state.accelerator.is_main_process:
        logger.info("Steps are not captured as CUDA graphs, because of %s.", obstacle)
