"""
Calculate the time of one update on 1 to 1,024 GPUs, and the time and price of recipes; or check the model on this CPU.

    python -m benchmarks.scaling_model
    python -m benchmarks.scaling_model --price 2.5 --mfu 0.3
    python -m benchmarks.scaling_model --measure

The last command runs 1, 2 and 4 gloo processes on this machine. `docs/scaling.md` explains the model.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import torch

from benchmarks.harness import ROOT, run_command
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.training.arguments import Recipe, parse_recipe
from vanilla_transformer.training.lr_scheduler import PAPER_MAX_STEPS

GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PROCESSES = (1, 2, 4)
_WMT = ("wmt14_en_de_base", "wmt14_en_de_big", "wmt14_en_fr_base", "wmt14_en_fr_big")
RECIPES = (*_WMT, "iwslt14_de_en", "multi30k_en_de")


@dataclass
class Assumptions:
    """Assumptions about the hardware. None of them is measured here."""

    peak: float = field(default=989e12, metadata={"help": "Operations per second of one GPU (H100 SXM, dense bf16)."})
    mfu: float = field(default=0.35, metadata={"help": "Share of the peak that training reaches on one GPU."})
    node: int = field(default=8, metadata={"help": "GPUs in a node."})
    node_bandwidth: float = field(default=360e9, metadata={"help": "Bytes per second and GPU inside a node (NVLink)."})
    bandwidth: float = field(default=40e9, metadata={"help": "Bytes per second and GPU between nodes (400 Gb/s)."})
    latency: float = field(default=2e-5, metadata={"help": "Seconds of each of 2 log2(n) phases of an all-reduce."})
    gradient_bytes: int = field(default=4, metadata={"help": "Bytes of a gradient's value: 4, or 2 in bfloat16."})
    overlap: float = field(default=0.8, metadata={"help": "Share of the backward pass that hides traffic."})
    tokens_per_second: float = field(default=5e6, metadata={"help": "Tokens per second of an input worker per GPU."})
    price: float = field(default=3.0, metadata={"help": "Dollars per GPU and hour."})
    measure: bool = field(default=False, metadata={"help": "Run gloo processes here and compare."})


@dataclass(frozen=True)
class Update:
    """Seconds of one update: the parts, and the whole."""

    compute: float
    traffic: float
    exposed: float
    input: float

    @property
    def seconds(self) -> float:
        return max(self.compute + self.exposed, self.input)


def predict_update(parameters: int, pairs: float, gpus: int, given: Assumptions) -> Update:
    """Return the time of an update of `pairs` source and as many target tokens, divided among `gpus`."""
    compute = 6 * parameters * pairs / gpus / (given.peak * given.mfu)
    traffic = all_reduce_seconds(parameters * given.gradient_bytes, gpus, given)
    # The backward pass takes two of the three parts of the compute time.
    exposed = max(0.0, traffic - given.overlap * compute * 2 / 3)
    return Update(compute, traffic, exposed, 2 * pairs / gpus / given.tokens_per_second)


def all_reduce_seconds(size: float, gpus: int, given: Assumptions) -> float:
    """Return the time of a ring all-reduce: each GPU sends 2 (n - 1) / n of the gradient over the slowest link."""
    if gpus == 1:
        return 0.0
    bandwidth = given.node_bandwidth if gpus <= given.node else given.bandwidth
    return 2 * (gpus - 1) / gpus * size / bandwidth + 2 * (gpus - 1).bit_length() * given.latency


def main(arguments: Sequence[str]) -> None:
    _, given = parse(Assumptions, arguments, "scaling_model [--flags]")
    if given.measure:
        print_measurement()
        return
    for name in ("wmt14_en_de_base", "wmt14_en_de_big"):
        print_updates(name, count_parameters(read_recipe(name)), given)
    print_recipes(given)


def read_recipe(name: str) -> Recipe:
    return parse_recipe([str(ROOT / "recipes" / f"{name}.yaml")])


def count_parameters(recipe: Recipe) -> int:
    """Count parameters with tied embeddings once, without allocating them."""
    config = VanillaTransformerConfig(**asdict(recipe.model), vocab_size=recipe.data.vocab_size)
    with torch.device("meta"):
        return sum(weight.numel() for weight in VanillaTransformerForConditionalGeneration(config).parameters())


def print_updates(name: str, parameters: int, given: Assumptions) -> None:
    """Print updates of the paper's size, and updates that grow with the number of GPUs."""
    print(f"{name}, {parameters / 1e6:.1f} million parameters, {given.mfu:.0%} MFU; milliseconds:\n")
    print("| GPUs | compute | traffic | exposed | input | 25,000 | efficiency | 25,000 per GPU | efficiency |")
    print("|---|---|---|---|---|---|---|---|---|")
    alone = predict_update(parameters, 25_000, 1, given).seconds
    for gpus in GPUS:
        strong = predict_update(parameters, 25_000, gpus, given)
        weak = predict_update(parameters, 25_000 * gpus, gpus, given).seconds
        parts = (strong.compute, strong.traffic, strong.exposed, strong.input, strong.seconds)
        cells = [f"{1000 * part:.2f}" for part in parts] + [f"{alone / gpus / strong.seconds:.0%}"]
        print(f"| {gpus:,} | {' | '.join(cells)} | {1000 * weak:.2f} | {alone / weak:.0%} |")
    print()


def print_recipes(given: Assumptions) -> None:
    print(f"Hours of updates, without validation, and dollars at {given.price:.2f} per GPU and hour:\n")
    print("| recipe | parameters | updates | tokens per side | 1 × H100: hours | dollars | 8 ×: hours | dollars |")
    print("|---|---|---|---|---|---|---|---|")
    for name in RECIPES:
        recipe = read_recipe(name)
        parameters, steps = count_parameters(recipe), recipe.optimization.max_steps or PAPER_MAX_STEPS
        batches = recipe.optimization.gradient_accumulation_steps
        pairs = recipe.data.tokens_per_step or recipe.data.max_tokens * batches
        cells = []
        for gpus in (1, 8):
            hours = predict_update(parameters, pairs, gpus, given).seconds * steps / 3600
            cells += [f"{hours:.2f}", f"{hours * gpus * given.price:.2f}"]
        print(f"| {name} | {parameters / 1e6:.1f} M | {steps:,} | {pairs:,} | {' | '.join(cells)} |")


def print_measurement() -> None:
    """Compare measured updates of gloo processes with the bounds of the model, from their parts measured alone."""
    print("| processes | compute alone, ms | traffic alone, ms | full overlap | no overlap | measured update, ms |")
    print("|---|---|---|---|---|---|")
    for processes in PROCESSES:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        command += ["--module", "benchmarks.scaling_model_worker"]
        output = run_command(command, "scaling_model_worker", {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
        parts = json.loads(output.splitlines()[-1])
        compute, traffic, update = (1000 * parts[name] for name in ("compute", "traffic", "update"))
        bounds = f"{max(compute, traffic):.0f} | {compute + traffic:.0f}"
        print(f"| {processes} | {compute:.0f} | {traffic:.0f} | {bounds} | {update:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
