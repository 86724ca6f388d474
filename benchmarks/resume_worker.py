"""
Run training for `bench_resume`: record each batch, and send SIGKILL at one exact place.

    python -m benchmarks.resume_worker RECORD PLACE [RECIPE.yaml] [flags of training]

PLACE is `2.1` for the moment before the first batch of the second update, `checkpoint-3` for the moment while that
folder is being written, or `never`. Each process writes to RECORD plus its rank. The package is not changed for this:
the worker observes the order of updates, the model's `forward`, torch's dropout, and opened files.
"""

import functools
import hashlib
import inspect
import json
import os
import sys
from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from vanilla_transformer import VanillaTransformerModel
from vanilla_transformer.cli import run
from vanilla_transformer.data.data_loader import MicroBatchLoader
from vanilla_transformer.data.micro_batch import MicroBatch
from vanilla_transformer.file_utils import HASHES_FILE
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train


def main(arguments: Sequence[str]) -> None:
    record, place, *flags = arguments
    rank = os.environ.get("RANK", "0")
    BatchRecord(Path(f"{record}.{rank}"), place).watch()
    if place.startswith("checkpoint-"):
        kill_while_writing(place)
    train(parse_recipe(flags), evaluate=lambda *_, **__: {})


class BatchRecord:
    """Write a line of JSON for each training batch: its pairs, its tokens and its random draws."""

    def __init__(self, path: Path, place: str):
        self.path, self.place = path, place
        self.updates = 0
        self.coming: deque[dict[str, Any]] = deque()
        self.dropped = hashlib.sha256()

    def watch(self) -> None:
        """Wrap the loader of batches and the model's `forward`, and hook torch's dropout."""
        iterate, forward = MicroBatchLoader.__iter__, VanillaTransformerModel.forward

        def recorded_updates(order: MicroBatchLoader) -> Generator[Any, None, None]:
            for update in iterate(order):
                self._expect(order.position.epoch, update)
                yield update

        @functools.wraps(forward)
        def recorded_forward(model: Any, *arguments: Any, **tensors: Any) -> Any:
            return self._record(forward, model, *arguments, **tensors)

        MicroBatchLoader.__iter__ = recorded_updates  # type: ignore[method-assign]
        VanillaTransformerModel.forward = recorded_forward  # type: ignore[method-assign]
        torch.nn.modules.module.register_module_forward_hook(self._add_mask)

    def _expect(self, epoch: int, update: Sequence[MicroBatch]) -> None:
        self.updates += 1
        for number, batch in enumerate(update, start=1):
            place = f"{self.updates}.{number}"
            self.coming.append({"place": place, "epoch": epoch, "pairs": batch.pairs.tolist()})

    def _record(self, forward: Any, model: Any, *arguments: Any, **tensors: Any) -> Any:
        if not model.training:
            return forward(model, *arguments, **tensors)
        line = self.coming.popleft()
        if line.pop("place") == self.place:
            kill_all_processes()
        given = inspect.signature(forward).bind(model, *arguments, **tensors).arguments  # by position or by name
        source = given["inputs_embeds" if given.get("input_ids") is None else "input_ids"]
        line["tokens"] = digest(source, given["decoder_input_ids"])
        line["generator_before"] = digest(torch.get_rng_state())
        self.dropped = hashlib.sha256()
        outputs = forward(model, *arguments, **tensors)
        line |= {"dropped": self.dropped.hexdigest(), "generator_after": digest(torch.get_rng_state())}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return outputs

    def _add_mask(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        if isinstance(module, torch.nn.Dropout) and module.training:
            self.dropped.update(np.packbits(((output == 0) & (inputs[0] != 0)).numpy()).tobytes())


def digest(*tensors: torch.Tensor) -> str:
    """Return a hash of the shapes and values of tensors."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(str(tuple(tensor.shape)).encode() + tensor.numpy(force=True).tobytes())
    return content.hexdigest()


def kill_while_writing(checkpoint: str) -> None:
    """Kill the run when it opens the last file of a checkpoint: that file is empty, the others are complete."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or "w" not in str(arguments[1]):
            return
        path = Path(str(arguments[0]))
        if path.name == HASHES_FILE and path.parent.name.startswith(f".{checkpoint}."):
            kill_all_processes()

    sys.addaudithook(hook)


def kill_all_processes() -> None:
    """Send SIGKILL to the launcher, if any, which would stop the other processes in order, to these, and to itself."""
    this = psutil.Process()
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    launcher = this.parent() if launched else None
    others = [] if launcher is None else [launcher, *(child for child in launcher.children() if child != this)]
    for process in [*others, this]:
        process.kill()


if __name__ == "__main__":
    sys.exit(run(main))
