"""Download, write and tokenize parallel text."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vanilla_transformer.data.data_arguments import Normalization, TokenizerModel, Vocabulary
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.model_folders import TOKENIZER_FILES
from vanilla_transformer.user_input.schemas import ARGUMENT, Input

from .flags import CommandArguments, parse


class DownloadDataArguments(CommandArguments):
    """Flags of `download-data`."""

    corpus: Annotated[str, ARGUMENT] = Field(
        description="Name of a corpus; a wrong one lists all names."
    )
    output_dir: str | None = Field(
        None, description="Folder for the files; by default data/CORPUS."
    )
    base_url: str | None = Field(
        None, description="Mirror that serves the same .gz files; by default the original source."
    )


def download_data_command(arguments: Sequence[str]) -> None:
    options = parse(DownloadDataArguments, arguments)
    from vanilla_transformer.data.download import CORPORA, download_corpus

    folder = Path("data") / options.corpus
    if options.output_dir:
        folder = Path(options.output_dir)
    folder = download_corpus(options.corpus, folder, options.base_url)
    license = CORPORA[options.corpus].license
    print(f"{options.corpus} is in {folder}. License: {license}.")


class WriteCorpusArguments(CommandArguments):
    """Flags of `write-corpus`."""

    output_dir: str = Field(
        description="Folder for train.en, train.de, the other splits and their license."
    )
    train: int = Field(82_941, description="Number of training pairs; by default all.")
    validation: int = Field(433, description="Number of validation pairs; by default all.")
    test: int = Field(500, description="Number of test pairs; by default all.")


def write_corpus_command(arguments: Sequence[str]) -> None:
    options = parse(WriteCorpusArguments, arguments)
    from vanilla_transformer.data.demo_corpus import write_demo_corpus

    folder = options.output_dir
    sizes = {"train": options.train, "validation": options.validation, "test": options.test}
    write_demo_corpus(folder, **sizes)
    print(f"The corpus is in {folder}. Its license (CC BY 2.0 FR) is in README.md there.")


class TrainTokenizerArguments(CommandArguments):
    """Flags of `train-tokenizer`."""

    files: Annotated[list[Input], ARGUMENT] = Field(
        description="Text files, one sentence per line."
    )
    output_dir: str = Field(description="Folder for tokenizer.json and tokenizer_config.json.")
    vocab_size: Vocabulary = Field(37000, description="Vocabulary size (section 5.1).")
    min_frequency: int = Field(
        2, ge=0, le=1_000_000_000, description="Minimum frequency of a pair to be merged."
    )
    model: TokenizerModel = Field(
        "bpe",
        description="Tokenizer model: bpe, unigram, wordpiece or sentencepiece; or, for sequences "
        "that are no language, characters, words or regex.",
    )
    pattern: str | None = Field(
        None, description="With --model regex: a regular expression, whose matches are tokens."
    )
    normalization: Normalization = Field(
        "nfc", description="Form of the text before it is split into words: nfc, nfkc or none."
    )


def train_tokenizer_command(arguments: Sequence[str]) -> None:
    options = parse(TrainTokenizerArguments, arguments)
    folder = Path(options.output_dir)
    for name in (*TOKENIZER_FILES, "tokenizer_config.json"):
        if (folder / name).exists():
            hint = "Choose another --output_dir, or delete it first."
            raise UserError(f"{folder} already holds a tokenizer. {hint}")
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.data.tokenizer_training import train_tokenizer

    lines = chain.from_iterable(read_lines(file) for file in options.files)
    tokenizer = train_tokenizer(
        lines,
        options.vocab_size,
        options.min_frequency,
        show_progress=True,
        model=options.model,
        normalization=options.normalization,
        pattern=options.pattern,
    )
    with atomic_folder(folder) as aside:
        tokenizer.save_pretrained(aside)
    print(f"The tokenizer with {len(tokenizer)} entries is in {folder}.")
