"""fp16 on a CPU: torch's own scaler and autocast replace Accelerate's, which need a GPU."""

from typing import Any

import torch
from accelerate import Accelerator

SCALE = 2.0**12


class HalfPrecision(Accelerator):
    """Behave as an `Accelerator` with fp16 on a GPU."""

    initial_scale = SCALE

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.native_amp = True
        self.scaler = torch.amp.GradScaler("cpu", init_scale=self.initial_scale, growth_interval=3)

    @property
    def mixed_precision(self) -> str:
        return "fp16"

    def autocast(self, *_: Any) -> Any:
        return torch.autocast("cpu", torch.float16)
