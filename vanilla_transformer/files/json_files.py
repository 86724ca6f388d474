"""Read JSON."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserFileError

logger = logging.getLogger(__name__)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    content = path.read_bytes()
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise UserFileError(f"{path} must be JSON, but it is nested too deeply.") from error
    except (
        ValueError
    ) as error:  # also for bytes that are not UTF-8, and for integers of more than 4,300 digits
        raise UserFileError(f"{path} must be JSON: {error}") from error


def walk_json(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key of a JSON value and of all values in it, with its value."""
    left = [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from value.items()
            left += value.values()
        elif isinstance(value, list):
            left += value


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the entries of the metrics of a run, a JSON object in each line, and warn of damaged
    lines.

    Each has a `step` and `minutes`. A truncated last line is left out.
    """
    entries, damaged = [], []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line.decode("utf-8"))
            _ = entry["step"], entry["minutes"]
            entries.append(entry)
        except (ValueError, TypeError, LookupError):
            damaged.append(str(number))
    if damaged:
        logger.warning("%s is damaged and read without line %s.", path, ", ".join(damaged))
    return entries
