"""
Measure a translation memory: the edits that it saves a translator, and its index.

    python -m benchmarks.bench_memory models/en-de catalog.po train.en train.de

A simulated translator replaces each translation of the messages of a catalog, in their order, by
the one of the catalog, which goes into the memory. Edits are TER against the translations of the
catalog, of the second half of the messages, beside the same model without a memory.

The index has the pairs of the training text and, up to `--pairs`, mixtures of their sentences. The
questions are sentences of the text without their third word.
"""

import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, ClassVar

from sacrebleu.metrics import TER

from benchmarks.harness import BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import CorpusSpec, open_corpus, read_lines, read_pairs

Pair = tuple[str, str]


@dataclass
class MemoryArguments(BenchmarkArguments):
    """Sizes."""

    SHORT: ClassVar[dict[str, Any]] = {"count": 200, "pairs": 20_000, "questions": 200}

    count: int = field(default=1000, metadata={"help": "Messages of the catalog."})
    pairs: int = field(default=1_000_000, metadata={"help": "Pairs of the index."})
    questions: int = field(default=1000, metadata={"help": "Sentences that are looked up."})
    draft_bias: float = field(
        default=0.0, metadata={"help": "Bias toward similar messages; by default the pipeline's."}
    )
    source_language: str = field(default="en", metadata={"help": "Language of the messages."})
    target_language: str = field(default="de", metadata={"help": "Language of the translations."})


def read_catalog(path: str, options: MemoryArguments) -> list[Pair]:
    """Return the first messages of a catalog that are translated and have letters."""
    source, target = options.source_language, options.target_language
    spec = CorpusSpec(file=path, source_language=source, target_language=target)
    chosen = list[Pair]()
    with open_corpus(spec) as corpus:
        for pair in read_pairs(corpus):
            if all(pair) and any(map(str.isalpha, pair.source)) and len(chosen) < options.count:
                chosen.append((pair.source, pair.target))
    return chosen


def measure_edits(model: str, pairs: Sequence[Pair], bias: float) -> list[dict[str, Any]]:
    """Return the rows of the model without and with a memory."""
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.extensions.memory.memory import TranslationMemory

    translate = load_pipeline(model)
    start = time.perf_counter()
    answers = translate([source for source, _ in pairs])
    texts = {"without": [answer["translation_text"] for answer in answers], "memory": []}
    seconds = {"without": time.perf_counter() - start}
    memory, similarities = TranslationMemory(), list[float]()
    start = time.perf_counter()
    for source, target in pairs:
        (answer,) = translate(source, memory=memory, draft_bias=bias, return_scores=True)
        similarities.append(answer.get("memory", 0.0))
        texts["memory"].append(answer["translation_text"])
        memory.add(source, target)
    seconds["memory"] = time.perf_counter() - start
    half = len(pairs) // 2
    references = [target for _, target in pairs[half:]]
    rows = list[dict[str, Any]]()
    for name, translations in texts.items():
        last = translations[half:]
        rows.append(
            {
                "memory": name,
                "messages": len(last),
                "TER": TER().corpus_score(last, [references]).score,
                "unchanged": sum(map(str.__eq__, last, references)),
                "seconds": seconds[name],
            }
        )
    last_similarities = similarities[half:]
    rows[1]["exact"] = last_similarities.count(1.0)
    rows[1]["similar"] = sum(0 < similarity < 1 for similarity in last_similarities)
    return rows


def mix_pairs(pairs: Sequence[Pair], count: int) -> Iterator[Pair]:
    """Yield pairs and, up to a count, mixtures of two sources each."""
    yield from pairs[:count]
    draw = random.Random(0)
    for _ in range(count - len(pairs)):
        (source, target), (other, _) = draw.choice(pairs), draw.choice(pairs)
        words, further = source.split(), other.split()
        first, last = draw.randrange(len(words) + 1), draw.randrange(len(further) + 1)
        yield " ".join([*words[:first], *further[last:]]), target


def measure_index(pairs: Sequence[Pair], options: MemoryArguments) -> dict[str, object]:
    """Return the row of the index."""
    from vanilla_transformer.extensions.memory.memory import TranslationMemory

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    memory = TranslationMemory(mix_pairs(pairs, options.pairs))
    memory.find("Nothing.")  # makes the index
    built = time.perf_counter() - start
    draw, wall, processor, found = random.Random(1), [], [], 0
    for source, _ in draw.choices(pairs, k=options.questions):
        words = source.split()
        question = " ".join([*words[:2], *words[3:]])
        start, start_processor = time.perf_counter(), time.process_time()
        found += memory.find(question) is not None
        wall.append(1000 * (time.perf_counter() - start))
        processor.append(1000 * (time.process_time() - start_processor))
    return {
        "sources": len(memory),
        "memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "seconds_to_read": built,
        "questions": options.questions,
        "found": found,
        "ms_mean": mean(wall),
        "ms_median": median(wall),
        "ms_mean_of_processor": mean(processor),
    }


def main(arguments: Sequence[str]) -> None:
    usage = "bench_memory MODEL CATALOG [SOURCE TARGET]"
    (model, catalog, *paths), options = read_arguments(MemoryArguments, arguments, usage, (2, 4))
    notes = [f"Model: {Path(model).name}. Catalog: {Path(catalog).name}."]
    if paths:
        sides = [list(read_lines(path)) for path in paths]
        row = measure_index(list(zip(*sides, strict=True)), options)
        print(row, flush=True)
        shown = ", ".join(f"{name} {value}" for name, value in row.items())
        notes.append(f"Index: {shown}.")
    rows = measure_edits(model, read_catalog(catalog, options), options.draft_bias)
    fewer = 1 - rows[1]["TER"] / rows[0]["TER"]
    notes.append(f"Edits are {fewer:.1%} fewer with the memory.")
    print(notes[-1])
    write_report("memory", options, rows, notes)


if __name__ == "__main__":
    sys.exit(run(main))
