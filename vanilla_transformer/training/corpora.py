"""Parallel text from files or from a dataset of the `datasets` library, checked while it is read."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from vanilla_transformer.tokenization_vanilla_transformer import encode_sentences


class SentencePair(NamedTuple):
    """A source sentence and its translation, as raw text."""

    source: str
    target: str


class EncodedPair(NamedTuple):
    """Token ids of a pair, each side ending with EOS."""

    source: list[int]
    target: list[int]


def read_text_files(source_file: str | Path, target_file: str | Path) -> list[SentencePair]:
    """
    Reads two UTF-8 files with one sentence a line; line n of one is the translation of line n of the other.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is empty or not UTF-8 (with the line), the numbers of lines differ, or a line is blank on
            one side only (with the line).
    """
    sources, targets = read_lines(source_file), read_lines(target_file)
    if len(sources) != len(targets):
        raise ValueError(
            f"Both sides must have the same number of lines, got {len(sources)} in {source_file} and {len(targets)} "
            f"in {target_file}."
        )
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        if bool(source) != bool(target):
            blank = source_file if not source else target_file
            raise ValueError(f"Line {number} of {blank} is blank, but its translation is not. Mend or delete both.")
    return [SentencePair(source, target) for source, target in zip(sources, targets, strict=True) if source]


def read_lines(path: str | Path) -> list[str]:
    """
    Lines of a UTF-8 text file without the white space around them. Only line feeds end a line, as in `wc -l`.

    Raises:
        OSError: there is no such file.
        ValueError: it is empty, or not UTF-8 (with the line).
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Give the path of a text file with one sentence a line.")
    data = path.read_bytes()
    if not data.strip():
        raise ValueError(f"{path} is empty. It must have one sentence a line.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path} must be UTF-8, but line {line} has the byte 0x{data[error.start]:02x} where none can be. Convert "
            "the file, for example with `iconv -f latin1 -t utf-8`."
        ) from error
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def read_dataset(name: str, split: str, source_language: str, target_language: str) -> list[SentencePair]:
    """
    Reads one split of a dataset with a `translation` column, whose entries map language codes to sentences.

    Args:
        name (`str`): A folder of `datasets.Dataset.save_to_disk`, or what `datasets.load_dataset` takes; there a
            configuration may follow a colon, as in `"wmt14:de-en"`.

    Raises:
        ValueError: there is no such split, column or language (with those that there are).
        OSError: the dataset cannot be found or read.
    """
    import datasets

    if Path(name).is_dir():
        found = datasets.load_from_disk(name)
    else:
        found = datasets.load_dataset(*name.split(":", maxsplit=1))
    if split not in found:
        raise ValueError(f"The dataset {name} must have a split {split!r}, it has {', '.join(map(repr, found))}.")
    rows = found[split]
    if "translation" not in rows.column_names:
        raise ValueError(
            f"The dataset {name} must have a column 'translation', it has {', '.join(map(repr, rows.column_names))}."
        )
    return _pairs_of_rows(rows["translation"], name, source_language, target_language)


def _pairs_of_rows(
    rows: Iterable[dict[str, str]], name: str, source_language: str, target_language: str
) -> list[SentencePair]:
    pairs = []
    for row in rows:
        for language in (source_language, target_language):
            if language not in row:
                raise ValueError(
                    f"The dataset {name} has no language {language!r}, it has {', '.join(map(repr, row))}."
                )
        pair = SentencePair(row[source_language].strip(), row[target_language].strip())
        if all(pair):
            pairs.append(pair)
    if not pairs:
        raise ValueError(f"The dataset {name} has no pair with text on both sides.")
    return pairs


def encode_pairs(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[SentencePair]) -> list[EncodedPair]:
    """Token ids of each pair, both sides ending with EOS."""
    sources = encode_sentences(tokenizer, [pair.source for pair in pairs])
    targets = encode_sentences(tokenizer, [pair.target for pair in pairs])
    return [EncodedPair(source, target) for source, target in zip(sources, targets, strict=True)]
