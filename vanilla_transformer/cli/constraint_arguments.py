"""Flags of the words and phrases that translations must contain."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ConstraintArguments:
    """Flags of lexical constraints."""

    constraint: list[str] | None = field(
        default=None,
        metadata={
            "help": "Words or phrases that each translation must contain, each in quotation marks if it has spaces. "
            "'Hund*' allows further letters.",
            "action": "extend",
            "nargs": "+",
        },
    )
    tab_constraints: bool = field(
        default=False, metadata={"help": "Each line has its own constraints after the sentence, separated by tabs."}
    )


def check_constraints(options: ConstraintArguments, format: str) -> None:
    """Check that constraints are for sentences.

    Raises:
        ValueError: They are for a document.
    """
    if format != "text" and (options.constraint or options.tab_constraints):
        raise ValueError(f"--constraint and --tab_constraints are for sentences, but `--format` is {format}.")


def split_constraints(options: ConstraintArguments, lines: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the sentences of lines, and the keyword arguments of the pipeline for their constraints."""
    if not options.tab_constraints:
        return list(lines), {} if options.constraint is None else {"constraints": options.constraint}
    rows = [line.split("\t") for line in lines]
    shared = options.constraint or []
    return [row[0] for row in rows], {"constraints": [[*row[1:], *(shared if row[0].strip() else [])] for row in rows]}


__all__ = ["ConstraintArguments", "check_constraints", "split_constraints"]
