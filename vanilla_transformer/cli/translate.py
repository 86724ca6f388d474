"""Translate sentences given as arguments, or the lines of standard input."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import tee
from typing import Any

from .arguments import PRECISION_HELP, WORKERS_HELP, parse, parse_workers


@dataclass
class TranslateArguments:
    """Flags of `translate`. By default the checkpoint's generation config decides, which is the paper's decoding."""

    num_beams: int | None = field(default=None, metadata={"help": "Beam size; 1 is greedy search."})
    num_return_sequences: int | None = field(
        default=None, metadata={"help": "Number of translations to print per sentence, best first."}
    )
    max_new_tokens: int | None = field(
        default=None, metadata={"help": "Maximum number of tokens per translation; by default source length + 50."}
    )
    batch_size: int = field(default=32, metadata={"help": "Sentences per batch."})
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    workers: str = field(default="1", metadata={"help": WORKERS_HELP})
    json: bool = field(
        default=False,
        metadata={"help": "Print a JSON object per sentence, with scores and the log-probability of each token."},
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TranslateArguments, arguments, "translate MODEL ['A sentence.' ...] [--flags] [< FILE]")
    if not words:
        raise ValueError("Name the folder (or Hub name) of a model first.")
    model, *sentences = words
    generate_kwargs = {name: value for name, value in vars(options).items() if value is not None}
    precision, workers = generate_kwargs.pop("precision", None), parse_workers(generate_kwargs.pop("workers"))
    if generate_kwargs.pop("json"):
        generate_kwargs |= {"return_scores": True, "return_tokens": True}
    from vanilla_transformer.inference.engine_workers import open_pipeline

    sources, texts = tee(sentences or (line.rstrip("\n") for line in sys.stdin))
    with open_pipeline(model, workers, precision, options.num_beams) as translate:
        answers = translate(sentences or texts, **generate_kwargs)
        for answer, source in zip(answers, sources, strict=True):
            for line in _lines(source, answer if isinstance(answer, list) else [answer], options.json):
                print(line, flush=True)


def _lines(source: str, answers: Sequence[dict[str, Any]], as_json: bool) -> Iterator[str]:
    from vanilla_transformer.inference.translations import rename_text

    if as_json:
        translations = [rename_text(answer) for answer in answers]
        yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
    else:
        yield from (answer["translation_text"] for answer in answers)
