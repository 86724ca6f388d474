"""
Measure the translation of text that grows, word by word.

    python -m benchmarks.bench_live models/en-de
    python -m benchmarks.bench_live models/en-de test.en

The sentences are of the file or, without one, of the test text of the demo. Each one is translated
again after each word: from scratch, and by `LiveTranslation`, whose last update is exact. Flicker
is erased tokens over final tokens (Arivazhagan et al. 2020). Steps are not compiled, and seconds
are of the processor, since the machine may do other work.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path

from benchmarks.harness import BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.decoding.live_translation import LiveTranslation, LiveUpdate


@dataclass
class LiveArguments(BenchmarkArguments):
    """How many sentences, and of which lengths."""

    count: int = field(default=200, metadata={"help": "Sentences."})
    least_words: int = field(default=5, metadata={"help": "Words of a sentence, at least."})
    hide: int = field(default=3, metadata={"help": "Tokens that are not shown yet."})


def growing(sentence: str) -> list[str]:
    """Return the beginnings of a sentence, word by word."""
    words = sentence.split()
    return [" ".join(words[:count]) for count in range(1, len(words) + 1)]


def count_erased(shown: Sequence[list[int]]) -> int:
    """Return how many tokens disappeared in successive outputs."""
    erased, before = 0, list[int]()
    for tokens in shown:
        erased += len(before) - len(commonprefix([before, tokens]))
        before = tokens
    return erased


def main(arguments: Sequence[str]) -> None:
    (model, *paths), options = read_arguments(LiveArguments, arguments, "bench_live MODEL", (1, 2))
    from vanilla_transformer.decoding.loading import load_pipeline

    lines = [source for source, _ in read_demo_corpus("test", 500)]
    if paths:
        lines = list(read_lines(paths[0]))
    long = [line for line in lines if len(line.split()) >= options.least_words]
    sentences = long[: options.count]
    translate = load_pipeline(model, num_beams=1, compile=False)
    tokenize = translate.encode_draft
    translate(sentences[:2])

    def from_scratch(sentence: str, hide: int) -> list[LiveUpdate]:
        live = LiveTranslation(translate, hide=hide)
        updates = []
        for text in growing(sentence):
            (answer,) = translate([text], split_sentences=True)
            output = answer["translation_text"]
            updates.append(LiveUpdate(output, live.count_stable(output)))
        return updates

    def by_drafts(sentence: str, hide: int) -> list[LiveUpdate]:
        live, texts = LiveTranslation(translate, hide=hide), growing(sentence)
        return [*map(live.update, texts[:-1]), live.finish(texts[-1])]

    systems: dict[str, Callable[[str, int], list[LiveUpdate]]] = {
        "from scratch": from_scratch,
        "LiveTranslation": by_drafts,
    }
    rows, seconds, last = list[dict[str, object]](), dict[str, float](), dict[str, list[str]]()
    for name, system in systems.items():
        start = time.process_time()
        runs = [system(sentence, options.hide) for sentence in sentences]
        seconds[name] = time.process_time() - start
        last[name] = [updates[-1].text for updates in runs]
        erased = erased_of_shown = total = 0
        for updates in runs:
            final = tokenize(updates[-1].text)
            texts = [update.text[: update.stable] for update in updates[:-1]]
            erased += count_erased([tokenize(update.text) for update in updates])
            erased_of_shown += count_erased([*map(tokenize, texts), final])
            total += len(final)
        same = sum(map(str.__eq__, last[name], last["from scratch"]))
        row = {"system": name, "updates": sum(map(len, runs)), "seconds": seconds[name]}
        row["time"] = seconds[name] / seconds["from scratch"]
        row |= {"flicker": erased / total, "flicker shown": erased_of_shown / total}
        rows.append(row | {"same at last": f"{same} of {len(runs)}"})
        print(rows[-1], flush=True)
    write_report("live", options, rows, [f"Model: {Path(model).name}."])


if __name__ == "__main__":
    sys.exit(run(main))
