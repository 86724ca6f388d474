"""
Measure the updates of any training loop in this process: target tokens per second and peak memory.

It needs torch and psutil only, so that it runs in the environments of other toolkits.
"""

import time
from typing import Any

import psutil
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.memory_usage import peak_bytes


class TimeLimitReached(Exception):
    """Stops training after the last measured update."""


class ThroughputMeter:
    """
    Measure training by a hook on the steps of torch's optimizers. The caller counts the tokens of each batch.

    Args:
        seconds: Minimum length of the measurement, without the `warm_up` updates before it.
        least: Minimum number of measured updates.
    """

    def __init__(self, seconds: float, warm_up: int, least: int):
        self.seconds, self.warm_up, self.least = seconds, warm_up, least
        self.updates = self.parameters = 0
        self.tokens = self.padded = self.resident_before = 0
        self.model: Any = None
        self.begin: dict[str, float] = {}
        self.result: dict[str, float] = {}
        self.hook = register_optimizer_step_post_hook(lambda *_: self._updated())

    def count(self, model: Any, tokens: int, padded: int) -> None:
        """Count a batch: its target tokens including EOS, without and with padding."""
        if self.model is None:
            self.model = model
            self.resident_before = psutil.Process().memory_info().rss
            self.parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
            if not self.warm_up:
                self.begin = _clocks()
        self.tokens += tokens
        self.padded += padded

    def _updated(self) -> None:
        self.updates += 1
        if self.updates == self.warm_up:
            self.begin, self.tokens, self.padded = _clocks(), 0, 0
        elif self.updates >= self.warm_up + self.least and time.monotonic() - self.begin["wall"] >= self.seconds:
            self._finish()
            self.hook.remove()
            raise TimeLimitReached

    def _finish(self) -> None:
        seconds, own, all_busy = (value - self.begin[name] for name, value in _clocks().items())
        self.result = {
            "tokens_per_second": self.tokens / seconds,
            "tokens_per_cpu_second": self.tokens / own,
            "updates": self.updates - self.warm_up,
            "target_tokens_an_update": self.tokens / (self.updates - self.warm_up),
            "target_padding": 1.0 - self.tokens / self.padded,
            "peak_mib": peak_bytes() / 2**20,
            "peak_over_resident_mib": (peak_bytes() - self.resident_before) / 2**20,
            "cores_busy_with_others": max(0.0, (all_busy - own) / seconds),  # the clocks have different resolutions
            "parameters": self.parameters,
        }


def _clocks() -> dict[str, float]:
    """Return wall-clock seconds, CPU seconds of this process, and busy seconds of all cores."""
    cores = psutil.cpu_times()
    busy = cores.user + cores.system + getattr(cores, "nice", 0.0) + getattr(cores, "steal", 0.0)
    return {"wall": time.monotonic(), "own": time.process_time(), "busy": busy}
