"""
Measure one point of a curve of `bench_long_sequences` in its own process: float32, on the CPU.

    python -m benchmarks.long_sequences_worker '{"what": "seconds", "length": 1024, "rounds": 3, "shape": {…}}'

`what` is "seconds" or "mib" of a training step, or "token" for the seconds of one generated token. Before measuring
"mib", set the environment variables of `harness.RELEASE_FREED_PAGES`.
"""

import copy
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.memory_usage import peak_increase_of
from vanilla_transformer import VanillaTransformerLongDecoderConfig, VanillaTransformerLongForCausalLM, create_cache

TOKENS = 8  # per round; the fastest counts
MIN_ROUND_SECONDS = 0.3  # minimum length of a round


def measure(what: str, length: int, rounds: int, shape: dict[str, Any]) -> dict[str, float]:
    """Measure one point: "seconds" or "mib" of a training step, or the seconds of a generated "token"."""
    model = VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**shape))
    if what == "token":
        return {"seconds": token_seconds(model, length, rounds)}
    step = training_step(model, length)
    if what == "seconds":
        return {"seconds": min(best_seconds(step) for _ in range(rounds))}
    return {
        "mib": peak_increase_of(step) / 2**20,
        "parameters_mib": model.get_memory_footprint(return_buffers=False) / 2**20,
    }


def training_step(model: VanillaTransformerLongForCausalLM, length: int) -> Callable[[], None]:
    """
    Return a function that runs forward and backward over one sequence of random tokens, with dropout.

    It has run once, so that the gradients of parameters are already allocated.
    """
    tokens = torch.randint(3, model.config.vocab_size, (1, length))
    model.train()

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()

    step()
    return step


def token_seconds(model: VanillaTransformerLongForCausalLM, position: int, rounds: int) -> float:
    """Return the seconds of the fastest generation step after a prompt, of `TOKENS` steps in each of `rounds`."""
    tokens = torch.randint(3, model.config.vocab_size, (1, position + 1))
    prompt, token = tokens.split([position, 1], dim=1)
    filled = create_cache(model.config)
    seconds = []
    with torch.inference_mode():
        model.eval()(input_ids=prompt, past_key_values=filled, use_cache=True, logits_to_keep=1)
        for _ in range(rounds):
            cache = copy.deepcopy(filled)

            def step(cache: Any = cache) -> None:
                model(input_ids=token, past_key_values=cache, use_cache=True)

            seconds += [_seconds_of(step) for _ in range(TOKENS)]
    return min(seconds)


def best_seconds(step: Callable[[], None]) -> float:
    """Return the seconds of the fastest step of a round; a short step runs often, because others may interrupt it."""
    found, started = [_seconds_of(step)], time.perf_counter()
    while time.perf_counter() - started + found[0] < MIN_ROUND_SECONDS:
        found.append(_seconds_of(step))
    return min(found)


def _seconds_of(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
