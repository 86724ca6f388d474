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
and temporary gradients.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import RELEASE_FREED_PAGES, growth_exponent, run_worker, write_curves
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse

Points = Sequence[dict[str, Any]]

SHAPE: dict[str, Any] = {"vocab_size": 64, "d_model": 128, "decoder_layers": 2, "decoder_attention_heads": 4}
SHAPE |= {"decoder_ffn_dim": 256}
_LINEAR = {"layer_types": "linear_attention"}
_SDPA = {"layer_types": "full_attention", "attn_implementation": "sdpa"}
_EAGER = {"layer_types": "full_attention", "attn_implementation": "eager"}
_PRE_NORM = {"layer_types": "linear_attention", "normalize_before": True}
# Name of a curve: its values, and the fields of each side.
CURVES: dict[str, tuple[list[int], dict[str, dict[str, Any]]]] = {
    "length": (
        [256, 512, 1024, 2048, 4096, 8192, 16384],
        {
            "softmax (eager)": _EAGER,
            "softmax (sdpa)": _SDPA,
            "linear": _LINEAR,
            "lsh": {"layer_types": "lsh_attention"},
        },
    ),
    "depth": (
        [2, 4, 8, 16, 32, 48],
        {"ordinary": _PRE_NORM, "reversible": {**_PRE_NORM, "reversible": True}},
    ),
    "position": ([64, 256, 1024, 4096, 16384], {"softmax": _SDPA, "linear": _LINEAR}),
}
_DEPTH_LENGTH = 1024
_LSH_CHUNK, _LSH_ROUNDS = 64, 2
_COPIES = 3  # matrices of probabilities per layer that a step with eager attention holds at a time, about
_QUANTITIES = {"seconds": ("ms", 1e3), "mib": ("MiB", 1.0)}


@dataclass
class LongArguments:
    """Curves, points and rounds."""

    curves: str = field(default=",".join(CURVES), metadata={"help": "Names of curves, separated by commas."})
    points: int | None = field(
        default=None, metadata={"help": "Points per curve, from the smallest on; by default all."}
    )
    rounds: int = field(default=3, metadata={"help": "Measurements of each time; the best counts."})
    output_dir: str = field(
        default="benchmarks/results", metadata={"help": "Folder of long_sequences.md, .json and .png."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(LongArguments, arguments, "bench_long_sequences.py [--flags]")
    write_curves("long_sequences", words, options, CURVES, lambda name: measure_curve(name, options), markdown, draw)


def measure_curve(name: str, options: LongArguments) -> list[dict[str, Any]]:
    """Measure all sides at each point, taking turns."""
    values, sides = CURVES[name]
    points = []
    for value in values[: options.points]:
        point = {side: _point(name, side, value, options.rounds) for side in sides}
        print(f"{name} {value}: {point}", file=sys.stderr)
        points.append({"value": value} | point)
    return points


def _point(curve: str, side: str, value: int, rounds: int) -> dict[str, float]:
    request = request_of(curve, side, value) | {"rounds": rounds}
    lacking = lacking_memory(request, psutil.virtual_memory().available)
    if lacking:
        return lacking
    if curve == "position":
        return _measure(request | {"what": "token"})
    return _measure(request | {"what": "seconds"}) | _measure(request | {"what": "mib"}, RELEASE_FREED_PAGES)


def _measure(request: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, float]:
    return run_worker("long_sequences_worker", request, environment=environment)


def request_of(curve: str, side: str, value: int) -> dict[str, Any]:
    """Return the shape of the model and the length of its sequence."""
    shape = SHAPE | CURVES[curve][1][side]
    length = value
    if curve == "depth":
        shape["decoder_layers"], length = value, _DEPTH_LENGTH
    if shape["layer_types"] == "lsh_attention":
        shape |= {"lsh_attn_chunk_length": _LSH_CHUNK, "num_hashes": _LSH_ROUNDS}
        shape["num_buckets"] = max(2, 2 * length // _LSH_CHUNK)
    return {"length": length, "shape": shape}


def lacking_memory(request: dict[str, Any], available: int) -> dict[str, float]:
    """Return needed and available memory if the matrices of probabilities do not fit, otherwise an empty dict."""
    shape, length = request["shape"], request["length"]
    if shape.get("attn_implementation") != "eager":
        return {}
    needed = 4 * shape["decoder_attention_heads"] * length**2 * shape["decoder_layers"] * _COPIES
    return {"needed_mib": needed / 2**20, "available_mib": available / 2**20} if needed > available else {}


def _measured(points: Points, what: str, *sides: str) -> list[dict[str, Any]]:
    """Return the points that all these sides have."""
    return [point for point in points if all(what in point[side] for side in sides)]


def _sides(points: Points) -> list[str]:
    return [name for name in points[0] if name != "value"]


def slope(points: Points, side: str, what: str) -> float | None:
    """Fit the exponent of growth to the last three points; return None for fewer than two."""
    last = [(point["value"], point[side][what]) for point in _measured(points, what, side)[-3:]]
    if len(last) < 2 or min(y for _, y in last) <= 0.0:
        return None
    return growth_exponent(last)


def begins(points: Points, side: str, other: str, what: str) -> int | None:
    """Return the value from which on `side` always takes less than `other`, or None."""
    found = None
    for point in reversed(_measured(points, what, side, other)):
        if point[side][what] >= point[other][what]:
            break
        found = point["value"]
    return found


def markdown(name: str, points: Points) -> list[str]:
    """Return a table with a row for each point, a row of slopes, and conclusions."""
    columns = [(side, what) for what in _QUANTITIES for side in _sides(points) if _measured(points, what, side)]
    heads = [f"{side}, {_QUANTITIES[what][0]}" for side, what in columns]
    lines = [_row(name, heads), "|---" * (len(heads) + 1) + "|"]
    for point in points:
        lines.append(_row(f"{point['value']:,}", [_cell(point[side], what) for side, what in columns]))
    lines += [_row("slope", [_as_text(slope(points, side, what)) for side, what in columns]), ""]
    lines.append("Slopes are exponents of growth, fitted to the last three points of each side.")
    return [*lines, *_left_out(points), *_conclusions(name, points), ""]


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([first, *cells])} |"


def _cell(measured: dict[str, float], what: str) -> str:
    return f"{measured[what] * _QUANTITIES[what][1]:,.1f}" if what in measured else "left out"


def _as_text(exponent: float | None) -> str:
    return "–" if exponent is None else f"{exponent:.2f}"


def _left_out(points: Points) -> list[str]:
    return [
        f"{side} was not measured at {point['value']:,}: it needs about {point[side]['needed_mib']:,.0f} MiB, but "
        f"{point[side]['available_mib']:,.0f} were available."
        for point in points
        for side in _sides(points)
        if "needed_mib" in point[side]
    ]


def _conclusions(name: str, points: Points) -> list[str]:
    if name == "length":
        others = ("softmax (sdpa)", "softmax (eager)")
        return [_advantage(points, other, what) for other in others for what in _QUANTITIES]
    if name == "depth":
        first, last = (point["value"] for point in (points[0], points[-1]))
        sizes = [point["ordinary"]["parameters_mib"] for point in (points[0], points[-1])]
        return [f"Parameters take {sizes[0]:.1f} MiB with {first} layers and {sizes[1]:.1f} with {last}."]
    return []


def _advantage(points: Points, other: str, what: str) -> str:
    """Return from which values on linear and LSH attention take less than `other`."""
    found = {side: begins(points, side, other, what) for side in ("linear", "lsh")}
    where = [f"{side} {'at no measured length' if at is None else f'from {at:,} on'}" for side, at in found.items()]
    return f"Less {'time' if what == 'seconds' else 'memory'} than {other}: {', '.join(where)}."


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw time above memory, one column per curve, on logarithmic axes, with slopes in the legends."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(4.4 * len(found), 7), squeeze=False)
    for column, (name, points) in enumerate(found.items()):
        for row, what in enumerate(_QUANTITIES):
            if any(_measured(points, what, side) for side in _sides(points)):
                _draw_axes(axes[row][column], name, points, what)
            else:
                axes[row][column].set_axis_off()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_axes(axes: Any, name: str, points: Points, what: str) -> None:
    for side, style in zip(_sides(points), ("o-", "s--", "^-.", "D:"), strict=False):
        measured = [point for point in _measured(points, what, side) if point[side][what] > 0.0]
        values = [point[side][what] for point in measured]
        label = f"{side}, slope {_as_text(slope(points, side, what))}"
        axes.plot([point["value"] for point in measured], values, style, label=label)
    axes.set(yscale="log", xlabel=name, ylabel="MiB" if what == "mib" else what)
    axes.set_xscale("log", base=2)
    axes.set_xticks([point["value"] for point in points], [f"{point['value']:,}" for point in points])
    axes.tick_params(axis="x", labelsize="small")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


if __name__ == "__main__":
    sys.exit(run(main))
