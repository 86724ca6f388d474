"""
Measure how fast batches are read, padded and handed to the training loop.

    python -m benchmarks.bench_input_path
    python -m benchmarks.bench_input_path --pairs 4500000

Writes generated pairs to an Arrow file in chunks, as tokenizing does, and prints two tables for updates of one batch
of `max_tokens`: the tokens a second that one core reads and pads, and the time that the training process spends on an
update. "Padded by sentence" is a loop over lists of tokens that builds a tensor for each; reading them is not timed.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from datasets.arrow_writer import ArrowWriter
from torch.nn.utils.rnn import pad_sequence

from benchmarks.bench_batching import generate_lengths
from benchmarks.harness import describe_processor
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.batch_sampler import PlannedBatch, StatefulBatchSampler
from vanilla_transformer.data.cleaning import CleaningReport
from vanilla_transformer.data.corpus import TokenizedCorpus
from vanilla_transformer.data.data_loader import MicroBatchLoader
from vanilla_transformer.data.micro_batch import IGNORED_LABEL
from vanilla_transformer.data.tokenized_corpus import EncodedPair, EncodedPairs, TokenTable
from vanilla_transformer.data.tuning import ROWS_PER_BATCH

_VOCABULARY = 37_000
_FEATURES = datasets.Features({name: datasets.Sequence(datasets.Value("int32")) for name in ("input_ids", "labels")})


@dataclass
class BenchmarkArguments:
    """Size of the corpus and of the updates."""

    pairs: int = field(default=1_000_000, metadata={"help": "Generated pairs of WMT14's lengths."})
    mean_length: float = field(default=27.0, metadata={"help": "Mean of the lengths, including EOS."})
    max_tokens: int = field(default=25_000, metadata={"help": "Tokens on either side of an update (section 5.1)."})
    updates: int = field(default=200, metadata={"help": "Updates of each measurement."})
    milliseconds: float = field(default=20.0, metadata={"help": "Computing time of an update that is pretended."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "bench_input_path [--flags]")
    if words:
        raise ValueError(f"This command takes only flags, got {words[0]!r}.")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="input-path-") as folder:
        corpus = write_corpus(Path(folder) / "encoded.arrow", options)
        print(f"{describe_processor()}\n\n{options.pairs:,} pairs, updates of {options.max_tokens:,} tokens a side:\n")
        print_reading(corpus, options)
        print_waiting(corpus, options)


def write_corpus(path: Path, options: BenchmarkArguments) -> TokenizedCorpus:
    """Write generated pairs to a file and map it."""
    random = np.random.default_rng(0)
    lengths = generate_lengths(options.pairs, options.mean_length, seed=0)
    with ArrowWriter(path=str(path), features=_FEATURES) as writer:
        for first in range(0, options.pairs, ROWS_PER_BATCH):
            sides = [_random_tokens(side[first : first + ROWS_PER_BATCH], random) for side in lengths]
            writer.write_table(pa.table(dict(zip(_FEATURES, sides, strict=True))))
        writer.finalize()
    pairs = EncodedPairs(TokenTable(datasets.Dataset.from_file(str(path))))
    return TokenizedCorpus(pairs.table.dataset, pairs, [[1]], 0, CleaningReport(), {})


def _random_tokens(lengths: np.ndarray, random: np.random.Generator) -> pa.ListArray:
    offsets = np.append(0, lengths.cumsum()).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, random.integers(4, _VOCABULARY, offsets[-1], dtype=np.int32))


def print_reading(corpus: TokenizedCorpus, options: BenchmarkArguments) -> None:
    """Print how long one core reads and pads an update."""
    by_sentence, at_once, tokens = [], [], []
    for batch in plan(corpus, options):
        lists = [corpus.pairs[number] for number in batch.pairs.tolist()]
        by_sentence.append(time_call(pad_by_sentence, lists))
        at_once.append(time_call(corpus.pairs.table.pad, batch.rows, 0))
        tokens.append(sum(batch.counts[:2]))
    print("| | ms per update | million tokens a second |")
    print("|---|---|---|")
    for name, seconds in {"padded by sentence": by_sentence, "read and padded at once": at_once}.items():
        print(f"| {name} | {1000 * median(seconds):.2f} | {sum(tokens) / sum(seconds) / 1e6:.1f} |", flush=True)


def time_call(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the CPU seconds of a call."""
    begin = time.thread_time()
    function(*arguments)
    return time.thread_time() - begin


def plan(corpus: TokenizedCorpus, options: BenchmarkArguments) -> Iterator[PlannedBatch]:
    sampler = StatefulBatchSampler(corpus, options.max_tokens, seed=0)
    for _ in range(options.updates):
        sampler.enter_next_epoch()
        yield from sampler.take_step()


def pad_by_sentence(pairs: Sequence[EncodedPair]) -> list[torch.Tensor]:
    """Pad a batch by a tensor for each sentence."""
    sides = [
        ([pair.source for pair in pairs], 0),
        ([[1] * len(pair.source) for pair in pairs], 0),
        ([pair.target for pair in pairs], IGNORED_LABEL),
    ]
    return [pad_sequence([torch.tensor(row) for row in rows], True, value) for rows, value in sides]


def print_waiting(corpus: TokenizedCorpus, options: BenchmarkArguments) -> None:
    """Print how long the training process takes an update from the loader while it computes in between."""
    print(f"\nAfter {options.milliseconds:g} ms of other work, the training process takes the next update in:\n")
    print("| workers | ms | ms of its CPU time |")
    print("|---|---|---|")
    for workers in (0, 1, 2):
        loader = MicroBatchLoader(StatefulBatchSampler(corpus, options.max_tokens, seed=0), 0, workers)
        waited, computed = [], []
        with closing(iter(loader)) as steps:
            for _ in islice(steps, 5):  # until the workers have started
                time.sleep(options.milliseconds / 1000)
            for _ in range(options.updates):
                time.sleep(options.milliseconds / 1000)
                begin, begin_of_thread = time.perf_counter(), time.thread_time()
                next(steps)
                waited.append(time.perf_counter() - begin)
                computed.append(time.thread_time() - begin_of_thread)
        print(f"| {workers} | {1000 * median(waited):.2f} | {1000 * median(computed):.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
