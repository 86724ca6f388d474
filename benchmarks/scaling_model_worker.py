"""Measure compute, traffic and whole updates in each of the gloo processes of `scaling_model --measure`."""

import json
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.device_batch import BatchPreparation, to_device
from vanilla_transformer.training.loss import ModelWithLoss

SIZES = {"vocab_size": 8000, "d_model": 256, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024}
PAIRS, LENGTH, ROUNDS = 16, 25, 7


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = VanillaTransformerConfig(**SIZES, encoder_layers=3, decoder_layers=3)
    bare = VanillaTransformerForConditionalGeneration(config)
    model = DistributedDataParallel(ModelWithLoss(bare, 0.1))
    tokens = torch.randint(3, SIZES["vocab_size"], (PAIRS, LENGTH))
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    batch = to_device(batch, BatchPreparation.for_model(bare.model), torch.device("cpu"))
    gradient = torch.ones(sum(weight.numel() for weight in model.parameters()))

    def compute() -> None:
        with model.no_sync():
            model(batch).smoothed.backward()

    parts: dict[str, Callable[[], object]] = {
        "compute": compute,
        "traffic": lambda: dist.all_reduce(gradient),
        "update": lambda: model(batch).smoothed.backward(),
    }
    seconds = {name: median([_time(part) for _ in range(ROUNDS)][1:]) for name, part in parts.items()}
    if dist.get_rank() == 0:
        print(json.dumps(seconds))
    dist.destroy_process_group()


def _time(part: Callable[[], object]) -> float:
    """Return the seconds until the slowest process has ended `part`."""
    dist.barrier()
    begin = time.perf_counter()
    part()
    dist.barrier()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
