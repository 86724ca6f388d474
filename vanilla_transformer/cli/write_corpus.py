"""Write the embedded English-German corpus as text files."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse


@dataclass
class CorpusArguments:
    """How much text, and where."""

    output_dir: str = field(metadata={"help": "Folder for train.en, train.de and the other splits."})
    train: int = field(default=30_000, metadata={"help": "Training pairs."})
    validation: int = field(default=500, metadata={"help": "Validation pairs."})
    test: int = field(default=500, metadata={"help": "Test pairs, with combinations that training never shows."})
    seed: int = field(default=0, metadata={"help": "Another seed, other pairs."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(CorpusArguments, arguments, "write_corpus --output_dir FOLDER [--flags]")
    if words:
        raise ValueError(f"This command takes flags only, got {words[0]!r}.")
    from vanilla_transformer.embedded_corpus import write_corpus

    sizes = {"train": options.train, "validation": options.validation, "test": options.test}
    write_corpus(options.output_dir, **sizes, seed=options.seed)
    print(f"The corpus is in {options.output_dir}.")
