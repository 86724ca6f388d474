"""Write the English-German demo corpus and its gold word alignments as text files."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse, require_no_words


@dataclass
class CorpusArguments:
    """Flags of `write-corpus`."""

    output_dir: str = field(metadata={"help": "Folder for train.en, train.de, train.align and the other splits."})
    train: int = field(default=30_000, metadata={"help": "Number of training pairs."})
    validation: int = field(default=500, metadata={"help": "Number of validation pairs."})
    test: int = field(
        default=500, metadata={"help": "Number of test pairs; their word combinations are not in the training text."}
    )


def main(arguments: Sequence[str]) -> None:
    if any(word.split("=")[0] == "--seed" for word in arguments):
        raise ValueError(
            "The flag 'seed' was removed, because the demo corpus ships as data. In a source checkout, `python -m "
            "tools.demo_corpus` generates other sentences."
        )
    words, options = parse(CorpusArguments, arguments, "write-corpus --output_dir FOLDER [--flags]")
    require_no_words(words)
    from vanilla_transformer.data.demo_corpus import write_demo_corpus

    write_demo_corpus(options.output_dir, train=options.train, validation=options.validation, test=options.test)
    print(f"The corpus is in {options.output_dir}.")
