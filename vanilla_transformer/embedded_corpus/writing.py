"""Writes the corpus as plain text files, one sentence a line, as training reads them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .combinations import SPLITS
from .generation import generate_pairs


def write_corpus(
    folder: str | os.PathLike[str],
    *,
    train: int = 25_000,
    validation: int = 500,
    test: int = 500,
    seed: int = 0,
) -> dict[str, Path]:
    """Write train, validation and test as `train.en`, `train.de`, `validation.en` and so on, in UTF-8.

    Args:
        folder: where to; it is made where it does not exist, and files of these names in it are replaced.
        train: how many pairs of the training split; `validation` and `test` likewise.
        seed: another seed gives other sentences of the same splits.

    Returns:
        The six paths by file name, {"train.en": …, "train.de": …, …}.

    Raises:
        ValueError: if a count is below 1 or above what the grammar surely gives; nothing is written then.
    """
    counts = dict(zip(SPLITS, (train, validation, test), strict=True))
    texts: dict[str, Sequence[str]] = {}
    for split, count in counts.items():
        pairs = generate_pairs(split, count, seed)
        texts[f"{split}.en"] = [pair.source for pair in pairs]
        texts[f"{split}.de"] = [pair.target for pair in pairs]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    return {name: _write_lines(target / name, lines) for name, lines in texts.items()}


def _write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write aside and rename, so that nobody ever reads half a file."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return path
