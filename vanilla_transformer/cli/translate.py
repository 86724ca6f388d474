"""Translate sentences given as arguments, or the lines of standard input."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TranslateArguments, arguments, "translate MODEL ['A sentence.' ...] [--flags] [< FILE]")
    if not words:
        raise ValueError("Name the folder (or Hub name) of a model first.")
    model, *sentences = words
    generate_kwargs = {name: value for name, value in vars(options).items() if value is not None}
    precision, workers = generate_kwargs.pop("precision", None), parse_workers(generate_kwargs.pop("workers"))
    from vanilla_transformer.inference.engine_workers import open_pipeline

    texts: Iterable[str] = sentences or (line.rstrip("\n") for line in sys.stdin)
    with open_pipeline(model, workers, precision, options.num_beams) as translate:
        for translations in translate(texts, **generate_kwargs):
            for translation in translations if isinstance(translations, list) else [translations]:
                print(translation["translation_text"], flush=True)
