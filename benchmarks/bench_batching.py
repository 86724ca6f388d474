"""
Measure the planning of an epoch by `plan_batches`, and compare its padding and load balance with other orders.

    python -m benchmarks.bench_batching
    python -m benchmarks.bench_batching train.en train.de --tokenizer runs/tokenizer --max_tokens 1536

The first command prints both tables for generated lengths, the second one the comparison for text files.
"""

import math
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.batch_plan import BatchPlan, plan_batches
from vanilla_transformer.data.micro_batch import round_up

# Standard deviations that describe the logarithms of WMT14's lengths in tokens: one part is common to source and
# target, the other is independent.
_COMMON_DEVIATION, _OWN_DEVIATION = 0.6, 0.15
_LONGEST = 250


@dataclass
class BenchmarkArguments:
    """Corpora and batches."""

    tokenizer: str | None = field(default=None, metadata={"help": "Folder of the tokenizer for the text files."})
    max_tokens: int = field(
        default=3125, metadata={"help": "Maximum tokens per batch; the default is the paper's 25,000 on 8 devices."}
    )
    ranks: int = field(default=8, metadata={"help": "Number of devices, which synchronize at each update."})
    planned_pairs: list[int] = field(
        default_factory=lambda: [4_500_000, 36_000_000],
        metadata={
            "help": "Sizes of the generated corpora to plan, by default WMT14 English-German and English-French."
        },
    )
    compared_pairs: int = field(
        default=300_000, metadata={"help": "Number of generated pairs for the comparison without text files."}
    )
    mean_length: float = field(default=27.0, metadata={"help": "Mean of the generated lengths, including EOS."})
    seed: int = field(default=0, metadata={"help": "Seed of the generated lengths and of all orders."})


def main(arguments: Sequence[str]) -> None:
    files, options = parse(
        BenchmarkArguments, arguments, "bench_batching [SOURCE TARGET --tokenizer FOLDER] [--flags]"
    )
    if (len(files), options.tokenizer is not None) not in {(0, False), (2, True)}:
        raise ValueError("Pass a source file, a target file and --tokenizer, or none of them for generated lengths.")
    if options.tokenizer is not None:
        lengths = read_lengths(files[0], files[1], options.tokenizer)
    else:
        print_planning(options)
        lengths = generate_lengths(options.compared_pairs, options.mean_length, options.seed)
    print_comparison(*lengths, options)


def generate_lengths(pairs: int, mean: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw clipped log-normal lengths of sources and targets, int32 of shape `(pairs,)` each."""
    random = np.random.default_rng(seed)
    # The mean of a log-normal variable is exp(μ + σ²/2).
    middle = math.log(mean) - (_COMMON_DEVIATION**2 + _OWN_DEVIATION**2) / 2
    common = random.normal(middle, _COMMON_DEVIATION, pairs).astype(np.float32)
    return _lengths_around(common, random), _lengths_around(common, random)


def _lengths_around(common: np.ndarray, random: np.random.Generator) -> np.ndarray:
    own = random.standard_normal(len(common), dtype=np.float32) * np.float32(_OWN_DEVIATION)
    return np.exp(common + own).round().clip(1, _LONGEST).astype(np.int32)


def read_lengths(source_file: str, target_file: str, tokenizer: str) -> tuple[np.ndarray, np.ndarray]:
    """Count the tokens of each sentence of two text files."""
    from transformers import AutoTokenizer

    import vanilla_transformer  # noqa: F401  registers the tokenizer
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.data.tokenized_corpus import encode_pairs

    pairs = encode_pairs(AutoTokenizer.from_pretrained(tokenizer), read_text_files(source_file, target_file))
    source, target = (np.array([len(side) for side in sides], dtype=np.int32) for sides in zip(*pairs, strict=True))
    return source, target


def print_planning(options: BenchmarkArguments) -> None:
    print(f"Planning an epoch of generated pairs, {options.max_tokens} tokens a batch, {options.ranks} ranks:\n")
    print("| pairs | updates | CPU seconds | peak memory | as a multiple of the lengths (int32) |")
    print("|---|---|---|---|---|")
    for pairs in options.planned_pairs:
        lengths = generate_lengths(pairs, options.mean_length, options.seed)
        updates, seconds, peak = measure_planning(*lengths, options)
        size = sum(side.nbytes for side in lengths)
        print(f"| {pairs:,} | {updates:,} | {seconds:.1f} | {peak / 2**20:,.0f} MiB | {peak / size:.1f} |", flush=True)
    print()


def measure_planning(source: np.ndarray, target: np.ndarray, options: BenchmarkArguments) -> tuple[int, float, int]:
    """Plan an epoch twice; return its updates, the CPU seconds, and the peak of allocated bytes."""

    def plan() -> BatchPlan:
        return plan_batches(source, target, options.max_tokens, options.seed, batches_per_step=options.ranks)

    begin = time.process_time()  # CPU time, because other work may share the machine
    updates = len(plan())
    seconds = time.process_time() - begin
    tracemalloc.start()  # slows the call down, so time is measured without it
    plan()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return updates, seconds, peak


def print_comparison(source: np.ndarray, target: np.ndarray, options: BenchmarkArguments) -> None:
    ours = plan_batches(source, target, options.max_tokens, options.seed, batches_per_step=options.ranks)
    sentences = max(1, len(source) // (len(ours) * options.ranks))
    print(
        f"{len(source):,} pairs, {options.ranks} ranks, ours with {options.max_tokens} tokens a batch, the others "
        f"with as many pairs as ours have on average, {sentences}:\n"
    )
    print("| order | updates | padding | source | target | largest batch / budget | balance: max / mean of ranks |")
    print("|---|---|---|---|---|---|---|")
    print(_row("ours", ours, source, target, options.max_tokens))
    for multiple in (8, 16):
        print(_row_of_multiples(multiple, source, target, options), flush=True)
    for name, order in ORDERS.items():
        plan = in_chunks(order(source, sentences, options.seed), sentences, options.ranks)
        print(_row(name, plan, source, target, options.max_tokens), flush=True)


def _row_of_multiples(multiple: int, source: np.ndarray, target: np.ndarray, options: BenchmarkArguments) -> str:
    """Return the row of our batches when they are padded to multiples; pairs keep their own lengths as tokens."""
    plan = plan_batches(source, target, options.max_tokens, options.seed, 0, options.ranks, multiple)
    wide = [padded_tokens(plan, round_up(side, multiple)) for side in (source, target)]
    read = plan.pairs[: plan.bounds[-1]]
    tokens = [int(side[read].sum()) for side in (source, target)]
    shares = [1 - sum(tokens) / sum(int(w.sum()) for w in wide)]
    shares += [1 - count / int(w.sum()) for count, w in zip(tokens, wide, strict=True)]
    largest = np.maximum(*wide).max() / options.max_tokens
    cells = [f"{len(plan):,}", *(f"{share:.2%}" for share in shares), f"{largest:.2f}"]
    return f"| ours, padded to multiples of {multiple} | {' | '.join(cells)} | {balance(wide[0] + wide[1]):.3f} |"


def _row(name: str, plan: BatchPlan, source: np.ndarray, target: np.ndarray, max_tokens: int) -> str:
    wide_source, wide_target = padded_tokens(plan, source), padded_tokens(plan, target)
    shares = [
        padding_share(plan, [source, target]),
        padding_share(plan, [source]),
        padding_share(plan, [target]),
    ]
    largest = np.maximum(wide_source, wide_target).max() / max_tokens
    cells = [f"{len(plan):,}", *(f"{share:.2%}" for share in shares), f"{largest:.2f}"]
    return f"| {name} | {' | '.join(cells)} | {balance(wide_source + wide_target):.3f} |"


def padded_tokens(plan: BatchPlan, lengths: np.ndarray) -> np.ndarray:
    """Count the tokens of each batch including padding, `(steps, batches_per_step)`."""
    longest = np.maximum.reduceat(lengths[plan.pairs], plan.bounds[:-1])
    return (longest.astype(np.int64) * np.diff(plan.bounds))[plan.steps]


def padding_share(plan: BatchPlan, sides: list[np.ndarray]) -> float:
    """Return the share of padding among the tokens of all batches, over the given sides together."""
    read = plan.pairs[: plan.bounds[-1]]
    return 1 - sum(int(side[read].sum()) for side in sides) / sum(
        int(padded_tokens(plan, side).sum()) for side in sides
    )


def balance(cost: np.ndarray) -> float:
    """Return the time of all updates relative to an even split, from the cost of each batch `(steps, ranks)`."""
    return cost.max(axis=1).sum() / cost.mean(axis=1).sum()


def in_chunks(order: np.ndarray, sentences: int, ranks: int) -> BatchPlan:
    """Cut an order into batches of a fixed number of pairs, assigned to ranks in turns; drop the remainder."""
    updates = len(order) // (sentences * ranks)
    batches = np.arange(updates * ranks)
    return BatchPlan(order, np.append(batches, len(batches)) * sentences, batches.reshape(-1, ranks))


def sort_and_chunk(source: np.ndarray, sentences: int, seed: int) -> np.ndarray:
    """Sort by source length, cut into batches, shuffle the batches."""
    chunks = np.array_split(np.argsort(source, kind="stable"), range(sentences, len(source), sentences))
    shuffled = np.random.default_rng(seed).permutation(
        len(chunks) - 1
    )  # the last one, which may be smaller, stays last
    return np.concatenate([*(chunks[chunk] for chunk in shuffled), chunks[-1]])


def sort_only(source: np.ndarray, sentences: int, seed: int) -> np.ndarray:
    """Sort by source length: the batches of one update are neighbors, and each epoch has the same order."""
    return np.argsort(source, kind="stable")


def group_by_length(source: np.ndarray, sentences: int, seed: int) -> np.ndarray:
    """Return the order of `Trainer` with `group_by_length`, which looks at the length of `input_ids` only."""
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    generator = torch.Generator().manual_seed(seed)
    return np.array(get_length_grouped_indices(source.tolist(), sentences, generator=generator))


def shuffle(source: np.ndarray, sentences: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(len(source))


ORDERS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "sorted by source, chunks in order": sort_only,
    "sorted by source, chunks shuffled": sort_and_chunk,
    "`Trainer` with `group_by_length`": group_by_length,
    "random": shuffle,
}


if __name__ == "__main__":
    sys.exit(run(main))
