"""Write the cleaned text of a recipe as text files."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from vanilla_transformer.file_utils import atomic_folder
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .cached_texts import CachedTexts
from .prepare_data import Texts
from .readers import SentencePair
from .tuning import ROWS_PER_BATCH

REPORT_FILE = "corpus.json"


def write_corpus_files(texts: Texts, folder: str | Path) -> list[Path]:
    """
    Write two parallel text files for each direction, and the report on cleaning as `corpus.json`, all or nothing.

    Returns:
        The text files, such as `train.en-de.en` and `train.en-de.de`; without languages `train.source` and
        `train.target`.

    Raises:
        ValueError: the recipe streams its text, which has no end.
        OSError: the folder cannot be written.
    """
    if not isinstance(texts.training, CachedTexts):
        raise ValueError("Text that is written must be read as a whole, but the recipe has `stream`. Leave it out.")
    directions = [spec.direction for spec in texts.specs]
    names = {name for direction in directions for name in _file_names(direction)}
    with atomic_folder(folder) as aside:
        with ExitStack() as stack:
            files = {name: stack.enter_context((aside / name).open("w", encoding="utf-8")) for name in names}
            for corpus, pair in _numbered_pairs(texts.training):
                for name, text in zip(_file_names(directions[corpus]), pair, strict=True):
                    files[name].write(" ".join(text.splitlines()) + "\n")
        report = {"cleaning": texts.training.report.to_dict()}
        (aside / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return sorted(Path(folder) / name for name in names)


def _file_names(direction: Direction) -> tuple[str, str]:
    if direction == NO_DIRECTION:
        return "train.source", "train.target"
    return f"train.{direction}.{direction.source}", f"train.{direction}.{direction.target}"


def _numbered_pairs(texts: CachedTexts) -> Iterator[tuple[int, SentencePair]]:
    for table in texts.dataset.with_format("arrow").iter(ROWS_PER_BATCH):
        columns = (table[name].to_pylist() for name in ("corpus", "source", "target"))
        yield from ((corpus, SentencePair(source, target)) for corpus, source, target in zip(*columns, strict=True))
