"""Metrics of a run: losses of steps, lines of `metrics.jsonl`, trackers, and the progress bar.

The host runs ahead of the device: losses stay there, and the host reads the ones of many steps at
once.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.json_files import read_json_lines
from vanilla_transformer.files.temporary import sync

from .distributed import sum_over_processes

logger = logging.getLogger(__name__)


METRICS_FILE, CURVE = "metrics.jsonl", "learning_curve.png"


class StepSums(NamedTuple):
    """Sums over the micro-batches of one step, in all processes: losses in nats, tokens of both
    sides.
    """

    plain_loss: float
    smoothed_loss: float
    target_tokens: float
    tokens: float
    padded_tokens: float


class UnreadStep(NamedTuple):
    """
    A step of this process whose losses are still on the device.

    Args:
        step: Its number, from 1.
        values: Plain loss, smoothed loss, and 1 if the gradient was finite, otherwise 0; on the
            device.
        counts: Target tokens, tokens of both sides, and the same with padding.
        pairs: The numbers of its pairs in the corpus, from 0, by micro-batch.
    """

    step: int
    values: torch.Tensor
    counts: tuple[int, int, int]
    pairs: list[np.ndarray]


def read_steps(
    accelerator: Accelerator, unread: Sequence[UnreadStep]
) -> list[tuple[StepSums, bool]]:
    """Wait for the device. Return the sums of each step over all processes, and whether its
    gradient was finite.

    All processes must call it together.
    """
    if not unread:
        return []
    counts = torch.tensor([step.counts for step in unread], dtype=torch.float64)
    values = torch.stack([step.values for step in unread]).to("cpu", torch.float64)
    rows = sum_over_processes(accelerator, torch.cat([values, counts], dim=1)).tolist()
    return [
        (StepSums(plain, smoothed, *tokens), finite == accelerator.num_processes)
        for plain, smoothed, finite, *tokens in rows
    ]


class StepMetrics:
    """Accumulate the sums of steps until a line is logged.

    Part of a checkpoint, since a run can stop in between.
    """

    def __init__(self) -> None:
        self._sums, self._since = [0.0] * len(StepSums._fields), time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self._sums, "seconds": time.monotonic() - self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums = state["sums"]
        self._since = time.monotonic() - state["seconds"]

    def add(self, step: StepSums) -> None:
        self._sums = [total + value for total, value in zip(self._sums, step, strict=True)]

    def pop(self) -> dict[str, float]:
        """Return the means since the last call, and start again.

        Returns:
            Losses in nats per target token, perplexity, target tokens per second, and the share of
            padding in the tokens of both sides.
        """
        sums = StepSums(*self._sums)
        loss = sums.plain_loss / sums.target_tokens
        entry = {
            "loss": loss,
            "smoothed_loss": sums.smoothed_loss / sums.target_tokens,
            "perplexity": math.exp(min(loss, 100.0)),
            "tokens_per_second": sums.target_tokens / (time.monotonic() - self._since),
            "padding": 1.0 - sums.tokens / sums.padded_tokens,
        }
        self._sums, self._since = [0.0] * len(sums), time.monotonic()
        return entry


class MetricsLogger:
    """Write metrics to `metrics.jsonl` and to Accelerate's trackers, and show a progress bar.

    The bar closes when the `with` block ends; entries can still be written after it.

    Args:
        folder: The run's folder.
        recipe: Names and values, for the trackers.
        steps: Steps of the run so far and in all, for the bar.
    """

    def __init__(
        self, folder: Path, accelerator: Accelerator, recipe: dict[str, Any], steps: tuple[int, int]
    ):
        self.folder = folder
        self.accelerator = accelerator
        if accelerator.log_with:
            # TensorBoard rejects None.
            plain = (int, float, str, bool)
            config = {
                name: value if isinstance(value, plain) else str(value)
                for name, value in recipe.items()
            }
            accelerator.init_trackers("vanilla-transformer", config=config)
        hidden = True if steps[0] >= steps[1] or not accelerator.is_local_main_process else None
        self.bar = tqdm(
            initial=steps[0], total=steps[1], desc="Training", unit="step", disable=hidden
        )
        self._redirect = logging_redirect_tqdm()

    def __enter__(self) -> "MetricsLogger":
        self._redirect.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._redirect.__exit__(*exception)
        self.bar.close()

    def advance(self, expected_steps: int) -> None:
        """Move the progress bar by one step, of `expected_steps` in all."""
        self.bar.total = expected_steps
        self.bar.update()

    def log_steps(self, entry: dict[str, Any]) -> None:
        """Write the metrics of the last steps, and show some beside the bar."""
        self.write(entry)
        loss = entry["loss"]
        tokens = entry["tokens_per_second"]
        rate = entry["learning_rate"]
        self.bar.set_postfix(
            {"loss": f"{loss:.3f}", "tokens/s": f"{tokens:.0f}", "lr": f"{rate:.1e}"}
        )

    def log_validation(self, entry: dict[str, Any]) -> None:
        """Write the result of a validation, and log it as a line for people, without the signatures
        of scores.
        """
        self.write(entry)
        if self.accelerator.is_main_process:
            shown = {
                name: value
                for name, value in entry.items()
                if not name.endswith(("signature", "examples"))
            }
            values = {
                name: f"{value:.2f}" if isinstance(value, float) else value
                for name, value in shown.items()
            }
            line = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
            logger.info("Validation: %s", line)
            for example in entry.get("examples", ()):
                logger.info(
                    "  %s", "\n    ".join(f"{side}: {text}" for side, text in example.items())
                )

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry, which has a `step`."""
        if self.accelerator.is_main_process:
            append_entry(self.folder, entry)
        values: dict[str, Any] = {
            name: value for name, value in entry.items() if isinstance(value, int | float)
        }
        if "examples" in entry:
            values["examples"] = "\n\n".join(
                " → ".join(example.values()) for example in entry["examples"]
            )
        self.accelerator.log(values, step=entry["step"])


def peak_memory_gib(device: torch.device) -> float:
    """Return the peak memory in GiB: of the GPU if `device` is one, otherwise of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    status = Path("/proc/self/status")
    # `getrusage` would include what the parent process used when it started this one.
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        # The line is in KiB.
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20
    try:
        import resource
    except ImportError:  # on Windows
        import psutil

        return psutil.Process().memory_info().peak_wset / 2**30
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def append_entry(folder: Path, entry: dict[str, Any]) -> None:
    with (folder / METRICS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    sync(folder / METRICS_FILE)


def read_entries(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run; none without a file."""
    path = folder / METRICS_FILE
    return read_json_lines(path) if path.exists() else []


def truncate_metrics(folder: Path, step: int) -> None:
    """Drop everything logged after `step`, from which the run resumes, and the scores of final
    models.
    """
    entries = read_entries(folder) if step else []
    entries = [entry for entry in entries if entry["step"] <= step and "model" not in entry]
    kept = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries]
    write_text_atomically(folder / METRICS_FILE, "".join(kept))
