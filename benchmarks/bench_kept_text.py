"""
Measure what text to keep costs a sentence.

    python -m benchmarks.bench_kept_text models/en-de test.en test.de train.de

The sentences are those with a name, and the name is replaced by a placeholder, code, a URL and so
on. BLEU is against the references with the same text instead of the name. A sentence is whole if
its translation has the text once and no word beside it that the training text lacks. The seconds
are the processor's for calls with all sentences, over the seconds of the sentences with their
name: both in turns, and of the ratios the median.
"""

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import sacrebleu

from benchmarks.harness import BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines

KINDS = (
    *("{name}", "<name>", "`code`", "%s", "%d", "https://www.example.org/a/b.html", ":term:"),
    *("'{name}'", '"{name}"', "“%s”"),
)
_NEIGHBORS = re.compile(r"([^\W\d_]+)?[^\w{}<>`%:]*\0[^\w{}<>`%:]*([^\W\d_]+)?")


@dataclass
class KeptTextArguments(BenchmarkArguments):
    """The name, and how many sentences."""

    name: str = field(default="Tom", metadata={"help": "The name that is replaced."})
    count: int = field(default=150, metadata={"help": "Sentences of each kind."})
    scored: int = field(default=60, metadata={"help": "Sentences of which BLEU is computed."})
    rounds: int = field(default=9, metadata={"help": "Turns, of which the median counts."})
    num_beams: int = field(default=1, metadata={"help": "Beams of the search."})


def sentences_with(word: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs that have an expression once on either side."""
    whole = re.compile(rf"\b{word}\b(?!['’])")
    return [pair for pair in pairs if all(len(whole.findall(text)) == 1 for text in pair)]


def replace_word(word: str, text: str, sentences: Sequence[str]) -> list[str]:
    """Return sentences with a text instead of an expression."""
    whole = re.compile(rf"\b{word}\b")
    return [whole.sub(lambda _: text, sentence, count=1) for sentence in sentences]


def is_whole(text: str, translation: str, words: set[str]) -> bool:
    """Return whether a translation has a text once, beside words that are known."""
    if translation.count(text) != 1:
        return False
    match = _NEIGHBORS.search(translation.replace(text, "\0"))
    return match is not None and all(word.lower() in words for word in match.groups() if word)


def main(arguments: Sequence[str]) -> None:
    usage = "bench_kept_text MODEL SOURCE TARGET TRAIN_TARGET"
    (model, *paths), options = read_arguments(KeptTextArguments, arguments, usage, (4,))
    from vanilla_transformer.decoding.loading import load_pipeline

    sources, targets, known = (list(read_lines(path)) for path in paths)
    words = {word.lower() for line in known for word in re.findall(r"[^\W\d_]+", line)}
    pairs = list(zip(sources, targets, strict=True))
    translate = load_pipeline(model, num_beams=options.num_beams)

    def timed(texts: Sequence[str]) -> tuple[list[str], float]:
        start = time.process_time()
        answers = translate(list(texts), split_sentences=False)
        seconds = time.process_time() - start
        return [answer["translation_text"] for answer in answers], seconds

    rows = []
    for kind in KINDS:
        word = r"(?<![\d.,:])\d+(?![.,:]?\d)" if kind == "%d" else options.name
        chosen = sentences_with(word, pairs)[: options.count]
        rows.append(measure(kind, word, chosen, words, options, timed))
        print(rows[-1], flush=True)
    write_report("kept_text", options, rows, [f"Model: {Path(model).name}."])


def measure(
    kind: str,
    word: str,
    pairs: Sequence[tuple[str, str]],
    words: set[str],
    options: KeptTextArguments,
    translate: Callable[[Sequence[str]], tuple[list[str], float]],
) -> dict[str, object]:
    """Return the row of a kind of text."""
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    changed = replace_word(word, kind, sources)
    plain, _ = translate(sources)
    kept, _ = translate(changed)
    ratios = []
    for _ in range(options.rounds):
        _, plain_seconds = translate(sources)
        _, kept_seconds = translate(changed)
        ratios.append(kept_seconds / plain_seconds)
    scored = options.scored
    references = replace_word(word, kind, targets)
    wrong = [text for text in kept if not is_whole(kind, text, words)]
    return {
        "text": f"`` {kind} ``",
        "sentences": len(pairs),
        "kept": sum(translation.count(kind) == 1 for translation in kept),
        "whole": len(kept) - len(wrong),
        "BLEU": sacrebleu.corpus_bleu(kept[:scored], [references[:scored]]).score,
        "BLEU of the word": sacrebleu.corpus_bleu(plain[:scored], [targets[:scored]]).score,
        "time / the word's": median(ratios),
        "of all turns": f"{min(ratios):.2f} to {max(ratios):.2f}",
        "examples": "; ".join(wrong[:3]),
    }


if __name__ == "__main__":
    sys.exit(run(main))
