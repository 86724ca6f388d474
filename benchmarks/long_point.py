"""
One point of a curve of `long_sequences.py`, in a process of its own: seconds or MiB of a training step, or seconds of
a generated token, in float32 on the CPU.

    python benchmarks/long_point.py '{"what": "seconds", "length": 1024, "rounds": 3, "shape": {"d_model": 128, …}}'

Whoever measures "mib" sets the environment variable MALLOC_MMAP_THRESHOLD_ to something small, as `long_sequences.py`
does. Otherwise what is free between small tensors stays resident, and counts.
"""

import copy
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from meter import peak_bytes

from vanilla_transformer import VanillaTransformerLongDecoderConfig, VanillaTransformerLongForCausalLM, new_memory

TOKENS = 8  # of a round; the fastest counts
MOMENT = 0.3  # seconds that a round takes unless one step takes more
_CLEAR_REFS = Path("/proc/self/clear_refs")


def measure(what: str, length: int, rounds: int, shape: dict[str, Any]) -> dict[str, float]:
    """The point by what is measured: of a "token" there are seconds only."""
    model = VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**shape))
    if what == "token":
        return {"seconds": token_seconds(model, length, rounds)}
    step = training_step(model, length)
    if what == "seconds":
        return {"seconds": min(best_seconds(step) for _ in range(rounds))}
    return {"mib": peak_of(step) / 2**20, "parameters_mib": model.get_memory_footprint(return_buffers=False) / 2**20}


def training_step(model: VanillaTransformerLongForCausalLM, length: int) -> Callable[[], None]:
    """
    Forward and backward over one sequence of random tokens, dropout included, without an optimizer.

    It has run once, so that gradients are there: what they take is resident before, and each step adds to them.
    """
    tokens = torch.randint(3, model.config.vocab_size, (1, length))
    model.train()

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()

    step()
    return step


def token_seconds(model: VanillaTransformerLongForCausalLM, position: int, rounds: int) -> float:
    """The fastest of `rounds` times `TOKENS` steps of generation behind a prompt; each round begins at its end."""
    tokens = torch.randint(3, model.config.vocab_size, (1, position + 1))
    prompt, token = tokens.split([position, 1], dim=1)
    filled = new_memory(model.config)
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
    """Of one step, or of as many as fit into a moment, since another process may interrupt a short one."""
    found, started = [_seconds_of(step)], time.perf_counter()
    while time.perf_counter() - started + found[0] < MOMENT:
        found.append(_seconds_of(step))
    return min(found)


def _seconds_of(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def peak_of(step: Callable[[], None]) -> int:
    """Bytes of resident memory that `step` has at most, beyond those before it."""
    _give_back_what_is_free()
    with watched_peak() as watched:
        step()
    return max(watched)


@contextmanager
def watched_peak() -> Iterator[list[int]]:
    """By the kernel's own maximum where it can be set back, which misses nothing, else by looking again and again."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        from scaling_point import watched_memory

        with watched_memory() as watched:
            yield watched
        return
    before = psutil.Process().memory_info().rss
    found = [0]
    yield found
    found.append(peak_bytes() - before)


def _give_back_what_is_free() -> None:
    """With glibc, or else pages of earlier steps would be used again unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
