"""Translate sentences given as words, or lines of standard input."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .arguments import parse


@dataclass
class TranslateArguments:
    """How to translate; what is not given is the checkpoint's own, which is the paper's decoding."""

    num_beams: int | None = field(default=None, metadata={"help": "Hypotheses kept; 1 is greedy."})
    num_return_sequences: int | None = field(default=None, metadata={"help": "Print so many translations of each."})
    max_new_tokens: int | None = field(default=None, metadata={"help": "Limit, in place of source length + 50."})
    batch_size: int = field(default=32, metadata={"help": "Sentences translated together."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TranslateArguments, arguments, "translate FOLDER ['A sentence.' ...] [--flags] [< FILE]")
    if not words:
        raise ValueError("Name the folder (or Hub name) of a model first.")
    folder, *sentences = words
    given = {name: value for name, value in vars(options).items() if value is not None}
    from transformers import pipeline

    translate = pipeline("translation", model=folder)
    texts: Iterable[str] = sentences or (line.rstrip("\n") for line in sys.stdin)
    for answer in translate(texts, **given):
        for hypothesis in answer if isinstance(answer, list) else [answer]:
            print(hypothesis["translation_text"], flush=True)
