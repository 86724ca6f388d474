"""Download, write and tokenize parallel text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from vanilla_transformer.data.data_arguments import NORMALIZATIONS, TOKENIZER_MODELS
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.file_utils import TOKENIZER_FILES, atomic_folder

from .flags import parse, require_no_words


@dataclass
class DownloadArguments:
    """Flags of `download-data`."""

    output_dir: str | None = field(default=None, metadata={"help": "Folder for the files; by default data/CORPUS."})
    base_url: str | None = field(
        default=None, metadata={"help": "Mirror that serves the same .gz files; by default the original source."}
    )


def download_data_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        DownloadArguments,
        arguments,
        "download-data CORPUS [--flags]",
        {"CORPUS": "Name of a corpus; a wrong one lists all names."},
    )
    from vanilla_transformer.data.download import CORPORA, download_corpus

    if len(words) != 1:
        raise UserError(f"Name one corpus of {', '.join(CORPORA)}, got {len(words)} names.")
    (name,) = words
    folder = download_corpus(name, Path(options.output_dir or Path("data") / name), options.base_url)
    print(f"{name} is in {folder}. License: {CORPORA[name].license}.")


@dataclass
class CorpusArguments:
    """Flags of `write-corpus`."""

    output_dir: str = field(metadata={"help": "Folder for train.en, train.de, the other splits and their license."})
    train: int = field(default=82_941, metadata={"help": "Number of training pairs; by default all."})
    validation: int = field(default=433, metadata={"help": "Number of validation pairs; by default all."})
    test: int = field(default=500, metadata={"help": "Number of test pairs; by default all."})


def write_corpus_command(arguments: Sequence[str]) -> None:
    words, options = parse(CorpusArguments, arguments, "write-corpus --output_dir FOLDER [--flags]")
    require_no_words(words)
    from vanilla_transformer.data.demo_corpus import write_demo_corpus

    write_demo_corpus(options.output_dir, train=options.train, validation=options.validation, test=options.test)
    print(f"The corpus is in {options.output_dir}. Its license (CC BY 2.0 FR) is in README.md there.")


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
    normalization: str = field(
        default="nfc",
        metadata={
            "help": "Form of the text before it is split into words: nfc, nfkc or none.",
            "choices": list(NORMALIZATIONS),
        },
    )


def train_tokenizer_command(arguments: Sequence[str]) -> None:
    files, options = parse(
        TokenizerArguments,
        arguments,
        "train-tokenizer FILE [FILE ...] --output_dir FOLDER [--flags]",
        {"FILE": "Text files, one sentence per line."},
    )
    if not files:
        raise UserError("Name at least one text file.")
    folder = Path(options.output_dir)
    if any((folder / name).exists() for name in (*TOKENIZER_FILES, "tokenizer_config.json")):
        raise UserError(f"{folder} already holds a tokenizer. Choose another --output_dir, or delete it first.")
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.data.tokenizer_training import train_tokenizer

    lines = chain.from_iterable(read_lines(file) for file in files)
    tokenizer = train_tokenizer(
        lines,
        options.vocab_size,
        options.min_frequency,
        show_progress=True,
        model=options.model,
        normalization=options.normalization,
    )
    with atomic_folder(folder) as aside:
        tokenizer.save_pretrained(aside)
    print(f"The tokenizer with {len(tokenizer)} entries is in {folder}.")
