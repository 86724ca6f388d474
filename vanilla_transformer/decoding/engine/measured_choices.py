"""Choices that were measured for a model on this machine, kept in the cache folder."""

import json
from pathlib import Path
from typing import Any

from vanilla_transformer.file_utils import write_text_atomically

from .machine_cache import cache_root


def load_choice(kind: str, identity: str) -> tuple[Any, str] | None:
    """Return a stored value and the reason for it, or None if there is none or its file is damaged.

    Args:
        kind: Name of the choice, such as `"precision"`.
        identity: A hash of all that the choice depends on.
    """
    try:
        choice = json.loads(_file_of(kind, identity).read_text(encoding="utf-8"))
        return choice[kind], choice["reason"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def store_choice(kind: str, identity: str, value: Any, reason: str) -> None:
    """Store a value and the reason for it; see [`load_choice`]."""
    write_text_atomically(_file_of(kind, identity), json.dumps({kind: value, "reason": reason}) + "\n")


def _file_of(kind: str, identity: str) -> Path:
    return cache_root() / "choices" / kind / f"{identity}.json"


__all__ = ["load_choice", "store_choice"]
