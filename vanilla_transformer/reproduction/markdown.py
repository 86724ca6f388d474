"""Tables in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as a table; None is an empty cell, and a list has no column."""
    heads = [head for head, value in rows[0].items() if not isinstance(value, list)]
    lines = [heads, ["---"] * len(heads), *([_cell(row[head]) for head in heads] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
