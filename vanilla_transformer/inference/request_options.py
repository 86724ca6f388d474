"""Take the options of one subject, which a dataclass has, out of the options of a request."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

Options = TypeVar("Options")


def split_options(kind: type[Options], options: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """Return the options of a request that a dataclass has, as an object of it, and the other options.

    Raises:
        ValueError: A value is out of range.
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    others = {name: value for name, value in options.items() if name not in names}
    return kind(**{name: value for name, value in options.items() if name in names}), others


__all__ = ["split_options"]
