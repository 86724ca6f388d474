"""Checkpoints of toolkits that write pickle, read without running anything in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def read_checkpoint(path: Path, toolkit: str, entry: str, allowed: Sequence[type] = ()) -> dict[str, Any]:
    """
    The content of a checkpoint: tensors, plain values, and objects of the `allowed` types.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is something else in it, or not the `entry` that the `toolkit` puts its weights under.
    """
    try:
        with torch.serialization.safe_globals(list(allowed)):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # of torch and of pickle, of many kinds
        raise ValueError(f"{path} cannot be read safely: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(content, dict) or entry not in content:
        raise ValueError(f"{path} must be a checkpoint of {toolkit} with the entry {entry!r}.")
    return content
