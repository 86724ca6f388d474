"""
Measure time and memory of full, linear and LSH attention and of reversible layers on long sequences:

- "length": a training step of a decoder-only model against the length of its one sequence. "Softmax (eager)" stores
  the matrix of probabilities, "softmax (sdpa)" does not.
- "depth": a training step over 1,024 tokens with linear attention against the number of layers, ordinary and
  reversible.
- "position": the time of one generated token against the number of tokens before it.

    python -m benchmarks.bench_long_sequences --curves "length,position"

A step is forward and backward in float32 on the CPU. Time and memory of each point are measured in separate processes.
Memory is the peak during a step beyond the memory before it, which includes the gradients of parameters: activations,
and temporary gradients. The last row of a curve has the exponents of growth, fitted to its last three points.
"""

import copy
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psutil
import torch

from benchmarks.harness import (
    RELEASE_FREED_PAGES,
    BenchmarkArguments,
    growth_exponent,
    is_worker,
    peak_increase_of,
    progress,
    read_arguments,
    run_worker,
    write_report,
)
from vanilla_transformer import VanillaTransformerLongDecoderConfig, VanillaTransformerLongForCausalLM, create_cache
from vanilla_transformer.cli import run

SHAPE: dict[str, Any] = {"vocab_size": 64, "d_model": 128, "decoder_layers": 2, "decoder_attention_heads": 4}
SHAPE |= {"decoder_ffn_dim": 256}
_LINEAR = {"layer_types": "linear_attention"}
_SDPA = {"layer_types": "full_attention", "attn_implementation": "sdpa"}
_EAGER = {"layer_types": "full_attention", "attn_implementation": "eager"}
_LSH = {"layer_types": "lsh_attention"}
_PRE_NORM = {"layer_types": "linear_attention", "normalize_before": True}
# Name of a curve: its values, and the fields of each side.
CURVES: dict[str, tuple[list[int], dict[str, dict[str, Any]]]] = {
    "length": (
        [256, 512, 1024, 2048, 4096, 8192, 16384],
        {"softmax (eager)": _EAGER, "softmax (sdpa)": _SDPA, "linear": _LINEAR, "lsh": _LSH},
    ),
    "depth": ([2, 4, 8, 16, 32, 48], {"ordinary": _PRE_NORM, "reversible": {**_PRE_NORM, "reversible": True}}),
    "position": ([64, 256, 1024, 4096, 16384], {"softmax": _SDPA, "linear": _LINEAR}),
}
DEPTH_LENGTH = 1024
LSH_CHUNK, LSH_ROUNDS = 64, 2
_COPIES = 3  # matrices of probabilities per layer that a step with eager attention holds at a time, about
TOKENS = 8  # per round; the fastest counts
MIN_ROUND_SECONDS = 0.3  # minimum length of a round


@dataclass
class LongArguments(BenchmarkArguments):
    """Curves, points and rounds."""

    SHORT: ClassVar[dict[str, Any]] = {"points": 2, "rounds": 1}

    curves: str = field(default=",".join(CURVES), metadata={"help": "Names of curves, separated by commas."})
    points: int | None = field(
        default=None, metadata={"help": "Points per curve, from the smallest on; by default all."}
    )
    rounds: int = field(default=3, metadata={"help": "Measurements of each time; the best counts."})


def main(arguments: Sequence[str]) -> None:
    _, options = read_arguments(LongArguments, arguments, "bench_long_sequences")
    names = options.curves.split(",")
    if not set(names) <= set(CURVES):
        raise ValueError(f"`curves` must be of {', '.join(CURVES)}, got {options.curves!r}.")
    rows = [row for name in names for row in measure_curve(name, options)]
    write_report("long_sequences", options, rows)


def measure_curve(name: str, options: LongArguments) -> list[dict[str, Any]]:
    """Measure all sides at each point, taking turns, and return a row for each point and one of exponents."""
    values, sides = CURVES[name]
    points: dict[int, dict[str, dict[str, float]]] = {}
    for value in values[: options.points]:
        points[value] = {side: _point(name, side, value, options.rounds) for side in sides}
        progress(f"{name} {value}: {points[value]}")
    return rows(name, points)


def rows(name: str, points: dict[int, dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """Return the rows of a curve: its points, and the exponents of growth of each side."""
    columns = {(side, what): f"{side}, {what}" for point in points.values() for side in point for what in point[side]}
    lines: list[dict[str, Any]] = [
        {"curve": name, "value": value} | {column: point[side].get(what) for (side, what), column in columns.items()}
        for value, point in points.items()
    ]
    exponents: dict[str, Any] = {"curve": name, "value": "exponent"}
    for (side, what), column in columns.items():
        exponents[column] = exponent([(value, point[side].get(what)) for value, point in points.items()])
    return [*lines, exponents]


def exponent(points: Sequence[tuple[int, float | None]]) -> float | None:
    """Fit the exponent of growth to the last three points that were measured; return None for fewer than two."""
    last = [(float(value), y) for value, y in points if y is not None][-3:]
    return growth_exponent(last) if len(last) > 1 and min(y for _, y in last) > 0.0 else None


def _point(curve: str, side: str, value: int, rounds: int) -> dict[str, float]:
    request = request_of(curve, side, value) | {"rounds": rounds}
    if lacks_memory(request, psutil.virtual_memory().available):
        progress(f"{curve} {value}, {side}: left out, since its matrices of probabilities do not fit into memory.")
        return {}
    if curve == "position":
        return run_worker("bench_long_sequences", request | {"what": "token"})
    time_and_memory = run_worker("bench_long_sequences", request | {"what": "ms"})
    return time_and_memory | run_worker(
        "bench_long_sequences", request | {"what": "MiB"}, environment=RELEASE_FREED_PAGES
    )


def request_of(curve: str, side: str, value: int) -> dict[str, Any]:
    """Return the shape of the model and the length of its sequence."""
    shape = SHAPE | CURVES[curve][1][side]
    length = value
    if curve == "depth":
        shape["decoder_layers"], length = value, DEPTH_LENGTH
    if shape["layer_types"] == "lsh_attention":
        shape |= {"lsh_attn_chunk_length": LSH_CHUNK, "num_hashes": LSH_ROUNDS}
        shape["num_buckets"] = max(2, 2 * length // LSH_CHUNK)
    return {"length": length, "shape": shape}


def lacks_memory(request: dict[str, Any], available: int) -> bool:
    """Return whether the matrices of probabilities, if a step stores them, take more bytes than are available."""
    shape, length = request["shape"], request["length"]
    if shape.get("attn_implementation") != "eager":
        return False
    return 4 * shape["decoder_attention_heads"] * length**2 * shape["decoder_layers"] * _COPIES > available


def measure(what: str, length: int, rounds: int, shape: dict[str, Any]) -> dict[str, float]:
    """Measure one point in this process: "ms" or "MiB" of a training step, or the milliseconds of a "token"."""
    torch.manual_seed(0)
    model = VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**shape))
    if what == "token":
        return {"ms": 1e3 * token_seconds(model, length, rounds)}
    step = training_step(model, length)
    if what == "ms":
        return {"ms": 1e3 * min(best_seconds(step) for _ in range(rounds))}
    return {"MiB": peak_increase_of(step) / 2**20}


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
    if is_worker():
        print(json.dumps(measure(**json.loads(sys.argv[2]))))
    else:
        sys.exit(run(main))
