"""
The step of an engine as CUDA graphs.

There is one graph for each size of the engine's buffers, and when a size gets other buffers, the
step is captured again; see [`cuda_graphs`][vanilla_transformer.machine.cuda_graphs].
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers.utils import logging

from vanilla_transformer.files.private_folders import check_inductor_caches
from vanilla_transformer.machine.cuda_graphs import Capture, CudaGraphs
from vanilla_transformer.user_input.reasons import first_line

from .compiled_steps import CompiledSteps, Step, check_compile, find_compiler
from .device_profile import profile_of
from .slot_buffers import SlotBuffers
from .step_package import export_step

logger = logging.get_logger(__name__)


def steps_for(
    step: nn.Module, compile: bool | str, buffers: SlotBuffers
) -> "CompiledSteps | GraphedSteps":
    """Return the forms of a step for the device of its weights: CUDA graphs on a GPU, compiled
    packages on a CPU.
    """
    check_compile(compile)
    device = next(step.parameters()).device
    if profile_of(device).captures_steps:
        return GraphedSteps(step, compile, CudaGraphs(device))
    return CompiledSteps(step, compile, buffers)


class GraphedSteps:
    """
    The step of an engine and its captured forms, with the interface of [`CompiledSteps`].

    Args:
        step: Maps `(state, memory)` to nothing and updates them.
        compile: `False` for eager steps. `True` compiles a step by inductor before it is captured,
            and waits.
        capture: Captures a function.
    """

    def __init__(self, step: nn.Module, compile: bool | str, capture: Capture):
        self.step = step
        self._compile, self._capture = compile, capture
        # With the addresses of the buffers of each size.
        self._forms: dict[tuple[int, ...], tuple[list[int], Step]] = {}

    def run(self, count: int, *arguments: Any) -> None:
        """Run the step `count` times on a state and a memory, which are updated."""
        step = self.find(arguments)
        for _ in range(count):
            step(*arguments)

    def decoding(self) -> AbstractContextManager[None]:
        """Return a context without effect: nothing compiles aside."""
        return nullcontext()

    def sharing_cores(self, rows: int) -> AbstractContextManager[None]:
        """Return a context without effect: nothing compiles aside."""
        return nullcontext()

    def find(self, arguments: Any) -> Step:
        """Return the step for exactly these tensors, which is captured if it has not been."""
        if not self._compile:
            return self.step
        addresses = [leaf.data_ptr() for leaf in pytree.tree_leaves(arguments)]
        size = tuple(arguments[0].ancestors.shape)  # slots, beams and positions
        known, form = self._forms.get(size, (None, self.step))
        if known != addresses:
            form = self._captured(arguments)
            self._forms[size] = addresses, form
        return form

    @property
    def is_compiled(self) -> bool:
        """Whether there is a captured form."""
        return any(form is not self.step for _, form in self._forms.values())

    def _captured(self, arguments: Any) -> Step:
        """Capture the step with these tensors, which keep their values: only copies of them are
        used to warm up.
        """
        try:
            step: Step = self.step
            copies = pytree.tree_map(torch.clone, arguments)
            if self._compile is True and _can_compile():  # at the first call
                compiled = torch.compile(export_step(self.step, copies).module(), dynamic=False)
                step = lambda *tensors: compiled(pytree.tree_leaves(tensors))  # noqa: E731
            replay = self._capture(partial(step, *arguments), partial(step, *copies))
        except Exception as error:  # of the driver, the allocator or the compiler
            reason = first_line(error)
            logger.warning_once(
                f"Capturing a CUDA graph failed, so decoding is not captured: {reason}."
            )
            return self.step
        return lambda *_: replay()


def _can_compile() -> bool:
    if find_spec("triton") is None or find_compiler() is None:
        logger.warning_once(
            "There is no Triton or no C++ compiler, so decoding is captured but not compiled."
        )
        return False
    try:
        check_inductor_caches()
    except OSError as error:
        logger.warning_once(f"Decoding is captured but not compiled. {error}")
        return False
    return True
