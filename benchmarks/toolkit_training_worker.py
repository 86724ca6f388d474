"""
Train with JoeyNMT or eole, by their own code and in their own environment, and print what the meter measured as JSON.

    python -m benchmarks.toolkit_training_worker '{"toolkit": "joeynmt", "config": …, "options": …}'

`bench_training` and `bench_quality` start it. When the time is over, the toolkit saves its model.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.throughput_meter import ThroughputMeter, TimeLimitReached


def measure(toolkit: str, config: str, options: dict[str, Any]) -> None:
    """Train until the time is over, and print the measurements."""
    meter = ThroughputMeter(options["seconds"], options["warm_up"], options["updates"])
    output = os.dup(1)  # both toolkits log to standard output
    os.dup2(2, 1)
    {"joeynmt": train_joeynmt, "eole": train_eole}[toolkit](Path(config), meter)
    os.write(output, json.dumps(meter.result).encode() + b"\n")
    os._exit(0)  # some threads still read batches


def train_joeynmt(config: Path, meter: ThroughputMeter) -> None:
    import joeynmt.__main__ as command
    from joeynmt.training import TrainManager

    plain_step = TrainManager._train_step

    def counted(manager: Any, batch: Any) -> Any:
        meter.count(manager.model, int(batch.ntokens), batch.trg.numel())
        return plain_step(manager, batch)

    TrainManager._train_step = counted
    sys.argv = ["joeynmt", "train", str(config), "--skip-test"]
    with suppress(TimeLimitReached):  # JoeyNMT still writes its checkpoint
        command.main()


def train_eole(config: Path, meter: ThroughputMeter) -> None:
    sys.modules["spacy"] = ModuleType("spacy")  # imported for transforms that are not used here
    from eole.bin.main import main
    from eole.trainer import Trainer

    plain_step = Trainer._train_step
    trainers: list[Any] = []

    def counted(trainer: Any, batches: Any, *arguments: Any, **options: Any) -> Any:
        trainers[:] = [trainer]
        for batch in batches:
            target = batch["tgt"][:, 1:]
            meter.count(trainer.model, int(target.ne(trainer.train_loss.padding_idx).sum()), target.numel())
        return plain_step(trainer, batches, *arguments, **options)

    Trainer._train_step = counted
    sys.argv = ["eole", "train", "-config", str(config)]
    try:
        main()
    except TimeLimitReached:
        trainers[0].model_saver.save(meter.updates)


if __name__ == "__main__":
    torch.manual_seed(0)
    measure(**json.loads(sys.argv[1]))
