"""Where a corpus is stored."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vanilla_transformer.text.languages import Direction

from .text_files import COMPRESSIONS

FILE_FORMATS = (".tsv", ".jsonl", ".tmx", ".xliff", ".xlf", ".sdlxliff", ".mqxliff", ".parquet", ".zip")
_NEVER_COMPRESSED = (".parquet", ".zip")
_LIBRARIES = ("opus:", "mtdata:")
_NO_TEXT = {"weight", "reverse"}


class SentencePair(NamedTuple):
    """A source sentence and its translation, as raw text."""

    source: str
    target: str


class CorpusRow(NamedTuple):
    """A pair, the number of its line or row, from 1, and its score in the corpus, if it has one."""

    number: int
    pair: SentencePair
    score: float | None = None


@dataclass(frozen=True)
class CorpusSpec:
    """
    One corpus of a mix: two parallel text files, one file with both sides, or a dataset.

    Args:
        source, target (`str`): Text files with one sentence per line; `.gz`, `.xz` and `.zst` files are decompressed.
        file (`str`):
            A `.tsv` (source TAB target, and maybe a score), `.jsonl`, `.tmx`, `.xliff`, `.xlf`, `.sdlxliff` or
            `.mqxliff` file, also compressed; a `.parquet` file; or a `.zip` file of OPUS with a text file for each
            language.
        dataset (`str`):
            A folder written by `datasets.Dataset.save_to_disk`, or a name for `datasets.load_dataset`, optionally
            followed by a colon and a configuration, as in `"wmt14:de-en"`. Or a corpus that opustools or mtdata
            downloads: `"opus:NAME"`, `"opus:NAME/RELEASE"` or `"mtdata:IDENTIFIER"`.
        split (`str`): The split of the dataset. What opustools or mtdata download has none.
        source_language, target_language (`str`):
            Keys in the `translation` column of a JSONL file, a Parquet file or a dataset, or names of two columns.
            Without them the columns are `source` and `target`. They also name the languages of the two sides where a
            model has several.
        weight (`float`): How many times each pair occurs in an epoch.
        name (`str`): For messages and `stages`. By default the dataset or the files as the user wrote them.
        reverse (`bool`): Translate from the target side to the source side, whose languages keep their names.

    Raises:
        ValueError: the spec names none or several of the three kinds, an unknown format, a split of a corpus that is
            downloaded, or an invalid weight.
    """

    source: str | None = None
    target: str | None = None
    file: str | None = None
    dataset: str | None = None
    split: str = "train"
    source_language: str | None = None
    target_language: str | None = None
    weight: float = 1.0
    name: str = ""
    reverse: bool = False

    def __post_init__(self) -> None:
        texts = {name: value for name, value in vars(self).items() if name not in _NO_TEXT and value is not None}
        wrong = [name for name, value in texts.items() if not isinstance(value, str)]
        if wrong:
            raise ValueError(f"`{wrong[0]}` of a corpus must be text, got {texts[wrong[0]]!r}.")
        if (self.source is None) != (self.target is None):
            raise ValueError(f"A corpus needs `source` and `target` together, got only {self.source or self.target}.")
        kinds = [kind for kind in ("source", "file", "dataset") if kind in texts]
        if len(kinds) != 1:
            got = " and ".join(f"`{kind}`" for kind in kinds) or "none of them"
            raise ValueError(f"A corpus needs `source` and `target`, or `file`, or `dataset`; got {got}.")
        if self.file is not None and self.format not in FILE_FORMATS:
            raise ValueError(
                f"The name of a `file` must end with {', '.join(FILE_FORMATS)} (.gz, .xz or .zst may follow the first "
                f"seven), got {self.file}."
            )
        if self.is_downloaded and self.split != "train":
            raise ValueError(
                f"`split` must be left out for {self.dataset}, which is read as a whole, got {self.split!r}. Leave it "
                "out, and name another corpus for held-out text."
            )
        object.__setattr__(self, "name", self.name or self.dataset or self.file or f"{self.source} | {self.target}")
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float) or not 0 < self.weight < 1e6:
            raise ValueError(f"`weight` of the corpus {self.name} must be a number above 0, got {self.weight!r}.")
        if type(self.reverse) is not bool:
            raise ValueError(f"`reverse` of the corpus {self.name} must be true or false, got {self.reverse!r}.")

    @property
    def direction(self) -> Direction:
        """Return the languages from and to which its pairs translate."""
        languages = self.source_language, self.target_language
        return Direction(*reversed(languages)) if self.reverse else Direction(*languages)

    @property
    def files(self) -> list[Path]:
        """Return the paths of its files; a dataset has none."""
        return [Path(path) for path in (self.source, self.target, self.file) if path is not None]

    @property
    def format(self) -> str:
        """Return the suffix of `file` without the suffix of a compression."""
        return file_format(self.file or "")

    @property
    def is_downloaded(self) -> bool:
        """Return whether `dataset` is an identifier of OPUS or mtdata."""
        return self.dataset is not None and self.dataset.startswith(_LIBRARIES)

    @property
    def is_editable(self) -> bool:
        """Return whether the pairs are lines of text that its user can mend."""
        return self.dataset is None and self.format in ("", ".tsv", ".jsonl")

    def require_languages(self) -> tuple[str, str]:
        """
        Return the source and the target language.

        Raises:
            ValueError: one of them is not given.
        """
        if self.source_language is None or self.target_language is None:
            missing = "source_language" if self.source_language is None else "target_language"
            raise ValueError(f"`{missing}` must be given for {self.name}, which has its languages by their codes.")
        return self.source_language, self.target_language

    def location(self, side: int) -> str:
        """Return where a side (0: source, 1: target) of its pairs is stored, for messages."""
        if self.dataset is not None:
            return f"the dataset {self.dataset}"
        return str(self.files[(1 - side if self.reverse else side) % len(self.files)])


def file_format(name: str) -> str:
    """Return the suffix of a file without the suffix of a compression."""
    suffixes = Path(name).suffixes
    compressed = len(suffixes) > 1 and suffixes[-1] in COMPRESSIONS and suffixes[-2] not in _NEVER_COMPRESSED
    return "".join(suffixes[-2:-1] if compressed else suffixes[-1:])
