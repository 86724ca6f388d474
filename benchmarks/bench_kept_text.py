"""
Count the sentences in which a model loses placeholders, numbers or addresses, and how many constraints mend.

    python -m benchmarks.bench_kept_text --folder runs/mine --sentences test.en

Writes one to three of them between the words of each sentence, and translates it as a document is translated. "lost"
are the sentences of which the first translation lacks one of them, and "constrained" the sentences that are mended by
decoding again under constraints. Of the others, "around", only the text around them is translated.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.documents.block_translator import Answer

KINDS = {
    "placeholder": ("{name}", "%s", "$1", "%(count)d"),
    "number": ("2,500", "12:30", "2024-05-06", "1984"),
    "address": ("https://a.example/b?c=1", "me@mail.example"),
    "emoji": ("🙂", "👩‍💻"),
}


@dataclass
class BenchmarkArguments:
    """The model and the text."""

    folder: str | None = field(default=None, metadata={"help": "Trained model that translates `sentences`."})
    sentences: str | None = field(default=None, metadata={"help": "Source text, one sentence per line."})
    count: int = field(default=200, metadata={"help": "Sentences of each kind."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "bench_kept_text.py --folder MODEL --sentences FILE")
    if words or options.folder is None or options.sentences is None:
        raise ValueError("Give a model as `--folder`, and a text as `--sentences`.")
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.decoding.loading import load_pipeline

    lines = [line.strip() for line in read_lines(options.sentences) if line.strip()][: options.count]
    pipeline = load_pipeline(options.folder)
    print("| kept text | sentences | lost | constrained | around |\n|---|---|---|---|---|")
    for kind, texts in KINDS.items():
        lost, mended = count_losses(pipeline, list(insert(lines, texts)))
        print(f"| {kind} | {len(lines)} | {lost} | {mended} | {lost - mended} |")


def insert(lines: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return each line with one to three of the texts between its words."""
    draw = random.Random(0)
    found = []
    for line in lines:
        words = line.split()
        for _ in range(draw.randint(1, 3)):
            words.insert(draw.randint(0, len(words) - 1), draw.choice(texts))
        found.append(" ".join(words))
    return found


def count_losses(pipeline: Any, sentences: Sequence[str]) -> tuple[int, int]:
    """Return how many sentences lose text that must survive, and how many of them constraints mend."""
    from vanilla_transformer.documents import Block, BlockTranslator, constrain_by, translate_by
    from vanilla_transformer.text.protection import find_masks, locate

    found = list[tuple[list[str], Answer | None]]()
    constrain = constrain_by(pipeline)
    if constrain is None:
        raise ValueError("The engine must decode the model, but it does not.")

    def record(texts: list[str], phrases: list[list[str]]) -> Sequence[Answer | None]:
        answers = constrain(texts, phrases)
        found.extend(zip(phrases, answers, strict=True))
        return answers

    masks = find_masks(pipeline.tokenizer)
    translator = BlockTranslator(translate_by(pipeline), lambda text: [text], masks, record)
    translator([Block(sentence, []) for sentence in sentences])
    return len(found), sum(answer is not None and locate(phrases, answer[0]) is not None for phrases, answer in found)


if __name__ == "__main__":
    sys.exit(run(main))
