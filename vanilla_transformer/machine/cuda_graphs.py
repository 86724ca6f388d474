"""
Work of a GPU as CUDA graphs: captured once, replayed at once.

A step of decoding or training is hundreds of kernels of a few microseconds each, and launching them
one by one from Python takes longer than running them. A CUDA graph launches them all at once. It
holds the addresses of the tensors with which it was captured, so the tensors that it reads and
writes must stay where they are.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch

from vanilla_transformer.machine.transfers import deliberate_wait

# Runs its second argument a few times, captures the first one without running it, and returns what
# replays it.
Capture = Callable[[Callable[[], Any], Callable[[], Any]], Callable[[], Any]]
# Runs in which libraries allocate memory and choose kernels, as the documentation of torch advises
WARM_UPS = 3
_one_at_a_time = threading.Lock()  # of captures in this process, a requirement of torch


class CudaGraphs:
    """Capture functions as CUDA graphs.

    They share their memory, since they never run at once and return nothing.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self._first: torch.cuda.CUDAGraph | None = None  # whose memory the others use

    def __call__(
        self, function: Callable[[], Any], warm_up: Callable[[], Any]
    ) -> Callable[[], None]:
        with deliberate_wait(), _one_at_a_time:
            self._stream = self._stream or torch.cuda.Stream(self._device)
            current = torch.cuda.current_stream(self._device)
            graph = torch.cuda.CUDAGraph()
            pool = None if self._first is None else self._first.pool()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    warm_up()
                with torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local"):
                    function()
            current.wait_stream(self._stream)
            self._first = self._first or graph

        def replay() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        return replay
