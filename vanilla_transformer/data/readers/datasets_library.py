"""Splits of datasets on disk or on the Hub."""

from pathlib import Path
from typing import Any

from .corpus_spec import CorpusSpec


def load_splits(name: str, streaming: bool = False) -> dict[str, Any]:
    """
    Load all splits of a dataset, memory-mapped (or streamed from the Hub).

    Raises:
        OSError: the dataset cannot be found or read.
    """
    import datasets

    if not Path(name).is_dir():
        return datasets.load_dataset(*name.split(":", maxsplit=1), streaming=streaming)
    try:
        found = datasets.load_from_disk(name)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"`dataset` must be a folder written by `save_to_disk` or a name on the Hub, got the folder {name}."
        ) from None
    # A dataset can also be saved without the name of a split.
    return {"train": found} if isinstance(found, datasets.Dataset) else found


def load_split(spec: CorpusSpec, streaming: bool = False) -> Any:
    """
    Load the split of a dataset that a corpus names.

    Raises:
        ValueError: there is no such split; the message lists the existing ones.
        OSError: the dataset cannot be found or read.
    """
    assert spec.dataset is not None
    found = load_splits(spec.dataset, streaming)
    if spec.split not in found:
        raise ValueError(
            f"The dataset {spec.dataset} must have a split {spec.split!r}, it has {', '.join(map(repr, found))}."
        )
    return found[spec.split]
