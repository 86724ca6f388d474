"""
Training as `bench_resume.py` watches it: each batch leaves a line in a record, and SIGKILL comes at one exact place.

    python -m benchmarks.resume_worker RECORD PLACE [RECIPE.yaml] [flags of training]

PLACE is `2.1`, before the first batch of the second update; `checkpoint-3`, while that folder is being written; or
`never`. Each process writes to RECORD with its own number behind it. Nothing in the package knows of all this: what is
watched is the order of updates, the model's `forward`, torch's dropout, and the files that are opened.
"""

import functools
import hashlib
import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from vanilla_transformer import VanillaTransformerModel
from vanilla_transformer.cli import run
from vanilla_transformer.data.batch_sampler import StatefulBatchSampler
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
    """One line of JSON for each batch that is trained on: which pairs it has, and what was drawn for it."""

    def __init__(self, path: Path, place: str):
        self.path, self.place = path, place
        self.updates = 0
        self.coming: deque[dict[str, Any]] = deque()
        self.dropped = hashlib.sha256()

    def watch(self) -> None:
        """Puts itself between the package and what it calls."""
        iterate, forward = StatefulBatchSampler.__iter__, VanillaTransformerModel.forward

        def recorded_updates(order: StatefulBatchSampler) -> Iterator[Any]:
            for update in iterate(order):
                self._expect(order.epoch, update)
                yield update

        @functools.wraps(forward)
        def recorded_forward(model: Any, *arguments: Any, **tensors: Any) -> Any:
            return self._record(forward, model, *arguments, **tensors)

        StatefulBatchSampler.__iter__ = recorded_updates  # type: ignore[method-assign]
        VanillaTransformerModel.forward = recorded_forward  # type: ignore[method-assign]
        torch.nn.modules.module.register_module_forward_hook(self._add_mask)

    def _expect(self, epoch: int, update: Sequence[tuple[list[int], Any]]) -> None:
        self.updates += 1
        for number, (pairs, _) in enumerate(update, start=1):
            self.coming.append({"place": f"{self.updates}.{number}", "epoch": epoch, "pairs": pairs})

    def _record(self, forward: Any, model: Any, *arguments: Any, **tensors: Any) -> Any:
        if not model.training:
            return forward(model, *arguments, **tensors)
        line = self.coming.popleft()
        if line.pop("place") == self.place:
            kill_all_processes()
        line["tokens"] = digest(tensors["input_ids"], tensors["decoder_input_ids"])
        line["generator_before"] = digest(torch.get_rng_state())
        self.dropped = hashlib.sha256()
        outputs = forward(model, *arguments, **tensors)
        line |= {"dropped": self.dropped.hexdigest(), "generator_behind": digest(torch.get_rng_state())}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return outputs

    def _add_mask(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        if isinstance(module, torch.nn.Dropout) and module.training:
            self.dropped.update(np.packbits(((output == 0) & (inputs[0] != 0)).numpy()).tobytes())


def digest(*tensors: torch.Tensor) -> str:
    """Stands for shapes and values of tensors."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(str(tuple(tensor.shape)).encode() + tensor.numpy().tobytes())
    return content.hexdigest()


def kill_while_writing(checkpoint: str) -> None:
    """Ends the run where the last file of a checkpoint is opened, which is still empty then; the others are there."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or "w" not in str(arguments[1]):
            return
        path = Path(str(arguments[0]))
        if path.name == "training_state.json" and path.parent.name.startswith(f".{checkpoint}."):
            kill_all_processes()

    sys.addaudithook(hook)


def kill_all_processes() -> None:
    """`kill -9` to the launcher, if there is one, which would let the others end in order, to these, and to itself."""
    this = psutil.Process()
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    launcher = this.parent() if launched else None
    others = [] if launcher is None else [launcher, *(child for child in launcher.children() if child != this)]
    for process in [*others, this]:
        process.kill()


if __name__ == "__main__":
    sys.exit(run(main))
