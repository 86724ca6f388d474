"""Translate sentences given as arguments, or the lines of standard input."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .arguments import PRECISION_HELP, parse


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


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TranslateArguments, arguments, "translate MODEL ['A sentence.' ...] [--flags] [< FILE]")
    if not words:
        raise ValueError("Name the folder (or Hub name) of a model first.")
    model, *sentences = words
    generate_kwargs = {name: value for name, value in vars(options).items() if value is not None}
    precision = generate_kwargs.pop("precision", None)
    from vanilla_transformer.inference.loading import load_pipeline

    translate = load_pipeline(model, precision=precision)
    texts: Iterable[str] = sentences or (line.rstrip("\n") for line in sys.stdin)
    for translations in translate(texts, **generate_kwargs):
        for translation in translations if isinstance(translations, list) else [translations]:
            print(translation["translation_text"], flush=True)
