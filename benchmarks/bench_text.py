"""
Measure the time of the text around decoding: splitting, tokenizing and detokenizing, in microseconds a sentence.

    python -m benchmarks.bench_text --file captions.en --tokenizer runs/multi30k_en_de

The stages are the pipeline's own functions, each on all sentences at once. By default the sentences are the demo
corpus', and the tokenizer is trained on them. Each row is the fastest of `--rounds` rounds.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences, split_lines

_VOCAB_SIZE = 4000
_SENTENCES = 2000


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    texts = (
        read_lines(options.file) if options.file else [pair.source for pair in read_demo_corpus("train", _SENTENCES)]
    )
    texts = [text for text in texts if text.strip()][:_SENTENCES]
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else train_tokenizer(texts, _VOCAB_SIZE)
    times = measure(texts, tokenizer, options.rounds)
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(f"{len(texts):,} sentences of {words:.1f} words and {times.pop('tokens'):.1f} tokens\n")
    print("| stage | µs a sentence |\n|---|---|")
    for stage, value in {**times, "together": sum(times.values())}.items():
        print(f"| {stage} | {value:.1f} |")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_text", allow_abbrev=False, description=__doc__.split("\n")[1])
    parser.add_argument("--file", help="text with a sentence in each line; by default the demo corpus")
    parser.add_argument("--tokenizer", help="folder of a model; by default a tokenizer is trained on the sentences")
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args(arguments)


def measure(texts: Sequence[str], tokenizer: Any, rounds: int) -> dict[str, float]:
    """Return the microseconds of each stage for one sentence, and the mean number of its `tokens`."""
    rows = encode_sentences(tokenizer, texts)
    stages: dict[str, Callable[[], object]] = {
        "split": lambda: [split_lines(text) for text in texts],
        "tokenize": lambda: encode_sentences(tokenizer, texts),
        "detokenize": lambda: [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)],
    }
    times = {name: min(_seconds(stage) for _ in range(rounds)) for name, stage in stages.items()}
    each = {name: 1e6 * seconds / len(texts) for name, seconds in times.items()}
    return each | {"tokens": sum(map(len, rows)) / len(rows)}


def _seconds(stage: Callable[[], object]) -> float:
    start = time.perf_counter()
    stage()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
