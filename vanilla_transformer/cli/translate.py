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
        metadata={
            "help": "Print a JSON object per sentence, with scores, the log-probability of each token and, if the "
            "model's configuration has `alignment_heads`, an alignment."
        },
    )
    alignments: bool = field(
        default=False,
        metadata={"help": "Print ` ||| ` and the pairs of aligned words, such as 0-0 1-2, after each translation."},
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TranslateArguments, arguments, "translate MODEL ['A sentence.' ...] [--flags] [< FILE]")
    if not words:
        raise ValueError("Name the folder (or Hub name) of a model first.")
    model, *sentences = words
    generate_kwargs = {name: value for name, value in vars(options).items() if value is not None}
    precision, workers = generate_kwargs.pop("precision", None), parse_workers(generate_kwargs.pop("workers"))
    for name in ("json", "alignments"):
        generate_kwargs.pop(name)
    from vanilla_transformer.inference.engine_workers import open_pipeline

    sources, texts = tee(sentences or (line.rstrip("\n") for line in sys.stdin))
    with open_pipeline(model, workers, precision, options.num_beams) as translate:
        if options.json:
            has_heads = bool(getattr(translate.model.config, "alignment_heads", None))
            generate_kwargs |= {"return_scores": True, "return_tokens": True, "return_alignments": has_heads}
        if options.alignments:
            generate_kwargs["return_alignments"] = True
        answers = translate(sentences or texts, **generate_kwargs)
        for answer, source in zip(answers, sources, strict=True):
            for line in _lines(source, answer if isinstance(answer, list) else [answer], options):
                print(line, flush=True)


def _lines(source: str, answers: Sequence[dict[str, Any]], options: TranslateArguments) -> Iterator[str]:
    from vanilla_transformer.inference.alignments import moses_pairs
    from vanilla_transformer.inference.translations import rename_text

    if options.json:
        translations = [rename_text(answer) for answer in answers]
        yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
    else:
        for answer in answers:
            text = answer["translation_text"]
            yield f"{text} ||| {moses_pairs(source, text, answer['alignment'])}" if options.alignments else text
