"""
Measure how memory and the time to the first batch depend on the size of a prepared corpus.

    python -m benchmarks.bench_windows FOLDER

Shards of random tokens, about 20 a side, are written to the folder once; all shards are links to
one file. Each size is measured in another process, with the files in the cache of the system:
from reading the manifest until the first step's batch is there, and on to the middle of the first
window, from where a thread plans the next one.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import (
    BenchmarkArguments,
    is_worker,
    peak_bytes,
    progress,
    read_arguments,
    run_worker,
    write_report,
)

_MIB = 2**20
_VOCABULARY, _MEAN_LENGTH, _LONGEST = 32_000, 20, 200
_MAX_TOKENS = 25_000


@dataclass
class WindowsArguments(BenchmarkArguments):
    """Sizes."""

    SHORT: ClassVar[dict[str, Any]] = {"shard_pairs": 10_000}

    shard_pairs: int = field(default=1_000_000, metadata={"help": "Pairs of a shard."})
    small: int = field(default=2, metadata={"help": "Shards of the small corpus."})
    large: int = field(default=20, metadata={"help": "Shards of the large corpus."})
    window_shards: int = field(default=2, metadata={"help": "Shards of a window."})
    batches: int = field(default=8, metadata={"help": "Batches of a step, over all processes."})


def write_corpus(folder: Path, pairs: int, shards: int) -> None:
    """Write a prepared corpus whose shards are links to one file."""
    import numpy as np
    import pyarrow as pa

    from vanilla_transformer import VanillaTransformerTokenizer
    from vanilla_transformer.data.cleaning import CleaningReport
    from vanilla_transformer.data.prepared_corpus import (
        REPORT_FILE,
        SHARD_SCHEMA,
        SHARDS,
        TOKENIZER,
        Manifest,
        describe_shard,
        write_manifest,
    )
    from vanilla_transformer.data.readers import ROWS_PER_BATCH
    from vanilla_transformer.data.tokenizer_training import hash_tokenizer

    first = folder / SHARDS / "00000.arrow"
    first.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    with pa.ipc.new_stream(str(first), SHARD_SCHEMA) as file:
        for begin in range(0, pairs, ROWS_PER_BATCH):
            rows = min(ROWS_PER_BATCH, pairs - begin)
            texts = pa.array(["a sentence of a corpus, with some words"] * rows)
            columns = [texts, texts, pa.array(np.zeros(rows, np.int32))]
            for _ in range(2):
                lengths = np.minimum(1 + random.poisson(_MEAN_LENGTH - 1, rows), _LONGEST)
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
                values = random.integers(3, _VOCABULARY, offsets[-1], dtype=np.int32)
                columns.append(pa.ListArray.from_arrays(offsets, values))
            file.write_batch(pa.record_batch(columns, schema=SHARD_SCHEMA))
    entry = describe_shard(first)
    entries = [entry]
    for number in range(1, shards):
        name = f"{SHARDS}/{number:05}.arrow"
        (folder / name).hardlink_to(first)
        entries.append(entry.model_copy(update={"file": name}))
    report = {"cleaning": CleaningReport(read=pairs * shards).to_dict(), "overlap": {}}
    (folder / REPORT_FILE).write_text(json.dumps(report))
    words = ["a sentence of a corpus"]
    tokenizer = VanillaTransformerTokenizer.train_from_iterator(words, vocab_size=280)
    tokenizer.save_pretrained(folder / TOKENIZER)
    recipe = {"train_source": "a.en", "train_target": "a.de"}
    manifest = Manifest(
        pairs=pairs * shards,
        tokenizer=hash_tokenizer(tokenizer),
        corpora=["a"],
        recipe=recipe,
        shards=entries,
    )
    write_manifest(folder, manifest)


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Return the memory and the seconds of one corpus, in this process."""
    from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
    from vanilla_transformer.data.data_arguments import DataArguments
    from vanilla_transformer.data.data_loader import MicroBatchLoader
    from vanilla_transformer.data.prepare_data import load_texts, tokenize
    from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer

    imported = peak_bytes()
    started, processor = time.monotonic(), time.process_time()
    arguments = {"train_data": request["folder"], "window_shards": request["window_shards"]}
    texts = load_texts(DataArguments(**arguments))
    corpus = tokenize(texts, load_or_train_tokenizer(texts), seed=0)
    options = {"num_replicas": request["batches"], "packing": request["packing"]}
    sampler = TokenBudgetBatchSampler(corpus, _MAX_TOKENS, **options)
    loader = MicroBatchLoader(sampler, pad_token_id=0)
    with closing(iter(loader)) as steps:
        next(steps)
        seconds, processor = time.monotonic() - started, time.process_time() - processor
        first = peak_bytes()
        while loader.position.done <= loader.position.steps // 2:
            next(steps)
        for plan in sampler._plans.values():
            plan.result()
    return {
        "seconds to the first batch": seconds,
        "of a core": processor,
        "MiB of imports": imported // _MIB,
        "MiB at the first batch": first // _MIB,
        "MiB with the next window": peak_bytes() // _MIB,
        "steps of an epoch": loader.position.steps_per_epoch,
    }


def main(arguments: Sequence[str]) -> None:
    (folder,), options = read_arguments(
        WindowsArguments, arguments, "bench_windows FOLDER", words=(1,)
    )
    rows = []
    for shards in (options.small, options.large):
        corpus = Path(folder) / f"{shards}x{options.shard_pairs}"
        if not corpus.exists():
            progress(f"Writing {corpus}.")
            write_corpus(corpus, options.shard_pairs, shards)
        for packing in (False, True):
            request = {"folder": str(corpus), "packing": packing, "batches": options.batches}
            request["window_shards"] = options.window_shards
            answer = run_worker("bench_windows", request, environment={"OMP_NUM_THREADS": "1"})
            row = {"pairs": shards * options.shard_pairs, "packed": "yes" if packing else "no"}
            rows.append(row | answer)
            progress(json.dumps(rows[-1]))
    write_report("windows", options, rows)


if __name__ == "__main__":
    if is_worker():
        print(json.dumps(measure(json.loads(sys.argv[2]))))
    else:
        main(sys.argv[1:])
