"""Flags of the prefixes with which translations begin, and of the alternatives after them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class PrefixArguments:
    """Flags of target prefixes."""

    target_prefix: str | None = field(default=None, metadata={"help": "Text with which each translation begins."})
    target_prefixes: str | None = field(
        default=None, metadata={"help": "File with the prefix of each sentence, line by line; blank for none."}
    )
    prefix_bias: float | None = field(
        default=None,
        metadata={"help": "Prefer the prefix instead of forcing it: the weight of its next token, from 0 to 1."},
    )
    alternatives: int | None = field(
        default=None,
        metadata={"help": "Print a translation for each of so many most likely tokens after the prefix."},
    )


def check_prefixes(options: PrefixArguments, format: str) -> None:
    """Check that prefixes are for sentences.

    Raises:
        ValueError: They are for a document, or given twice.
    """
    given = [name for name, value in vars(options).items() if name in PrefixArguments.__annotations__ and value]
    if format != "text" and given:
        raise ValueError(f"--{given[0]} is for sentences, but `--format` is {format}.")
    if options.target_prefix is not None and options.target_prefixes is not None:
        raise ValueError("Give --target_prefix (for all sentences) or --target_prefixes (a file), not both.")
    if options.prefix_bias is not None and options.target_prefix is None and options.target_prefixes is None:
        raise ValueError("--prefix_bias prefers a prefix. Give --target_prefix or --target_prefixes.")


def prefix_settings(options: PrefixArguments) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline, besides the prefixes of a file."""
    names = ("target_prefix", "prefix_bias", "alternatives")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def read_prefixes(options: PrefixArguments, total: int | None) -> list[str] | None:
    """Return the prefix of each sentence, or None if there is no file of them.

    Args:
        total: The number of sentences, if it is known.

    Raises:
        ValueError: The file has another number of lines.
        OSError: It cannot be read.
    """
    if options.target_prefixes is None:
        return None
    from vanilla_transformer.data.readers import read_lines

    lines = read_lines(options.target_prefixes)
    if total is not None and len(lines) != total:
        found = f"{len(lines)} in {options.target_prefixes}"
        raise ValueError(f"There must be a target prefix for each of {total} sentences, got {found}.")
    return lines


__all__ = ["PrefixArguments", "check_prefixes", "prefix_settings", "read_prefixes"]
