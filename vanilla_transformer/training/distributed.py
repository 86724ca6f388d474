"""What all processes of a run agree on."""

from collections.abc import Sequence

import torch
from accelerate import Accelerator


def sum_over_processes(accelerator: Accelerator, values: Sequence[float] | torch.Tensor) -> torch.Tensor:
    """The sum of each value, in every process. All must ask for it together."""
    precise = torch.float32 if accelerator.device.type == "mps" else torch.float64  # Apple's GPUs have none
    tensor = torch.as_tensor(values, dtype=precise).to(accelerator.device)
    return accelerator.reduce(tensor, reduction="sum")


def main_process_says(accelerator: Accelerator, value: bool) -> bool:
    """What the main process finds; clocks and disks of the others may differ."""
    return bool(sum_over_processes(accelerator, [value and accelerator.is_main_process])[0])
