"""Parsing that the commands share."""

from collections.abc import Sequence
from typing import TypeVar

from vanilla_transformer.data.arguments import check_names
from vanilla_transformer.training.recipe import Parser

Arguments = TypeVar("Arguments")


def parse(arguments_class: type[Arguments], arguments: Sequence[str], usage: str) -> tuple[list[str], Arguments]:
    """
    Words before the first flag, and the flags as a dataclass.

    Raises:
        ValueError: a flag that does not exist, with the nearest that does.
    """
    flags = [index for index, word in enumerate(arguments) if word.startswith("--")]
    first = flags[0] if flags else len(arguments)
    parser = Parser(arguments_class, usage=usage)
    known = set(arguments_class.__dataclass_fields__) | {"help"}  # type: ignore[attr-defined]
    check_names([arguments[index][2:].split("=")[0] for index in flags], known, "flag")
    (parsed,) = parser.parse(arguments[first:])
    return list(arguments[:first]), parsed
