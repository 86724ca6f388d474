"""Train a joint subword vocabulary on text files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from vanilla_transformer.data.data_arguments import TOKENIZER_MODELS
from vanilla_transformer.file_utils import atomic_folder

from .arguments import parse


@dataclass
class TokenizerArguments:
    """Flags of `train-tokenizer`."""

    output_dir: str = field(metadata={"help": "Folder for tokenizer.json and tokenizer_config.json."})
    vocab_size: int = field(default=37000, metadata={"help": "Vocabulary size (section 5.1)."})
    min_frequency: int = field(default=2, metadata={"help": "Minimum frequency of a pair to be merged."})
    model: str = field(
        default="bpe",
        metadata={"help": "Tokenizer model: bpe, unigram or wordpiece.", "choices": list(TOKENIZER_MODELS)},
    )


def main(arguments: Sequence[str]) -> None:
    files, options = parse(
        TokenizerArguments,
        arguments,
        "train-tokenizer FILE [FILE ...] --output_dir FOLDER [--flags]",
        {"FILE": "Text files, one sentence per line."},
    )
    if not files:
        raise ValueError("Name at least one text file.")
    folder = Path(options.output_dir)
    if (folder / "tokenizer.json").exists():
        raise ValueError(f"{folder} already holds a tokenizer. Choose another --output_dir, or delete it first.")
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.data.tokenizer_training import train_tokenizer

    lines = chain.from_iterable(read_lines(file) for file in files)
    tokenizer = train_tokenizer(
        lines, options.vocab_size, options.min_frequency, show_progress=True, model=options.model
    )
    with atomic_folder(folder) as aside:
        tokenizer.save_pretrained(aside)
    print(f"The tokenizer with {len(tokenizer)} entries is in {folder}.")
