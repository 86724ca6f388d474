"""Render tables of scores for pages, papers and spreadsheets."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tabulate import tabulate

from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.json_files import read_json_lines


def render_table(
    rows: Sequence[Mapping[str, Any]], format: Literal["markdown", "csv", "latex"] = "markdown"
) -> str:
    """Return a table with the keys of the first row as its header.

    Numbers get two digits, but not in CSV. Text stays as it is, also if it looks like a number.
    LaTeX needs the package booktabs.
    """
    if format != "csv":
        style = {"markdown": "github", "latex": "latex_booktabs"}[format]
        header = [*rows[0]]
        cells: list[list[str]] = []
        for row in rows:
            cells.append([*map(_as_text, row.values())])
        sides = ["right"] * len(header)
        sides[0] = "left"
        return tabulate(cells, header, style, disable_numparse=True, colalign=sides)
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _as_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    if value is None:
        return ""
    return str(value)


def compare_runs(runs: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Return a row for each run: the scores of its final model, or of its last validation until it
    has one.
    """
    rows = []
    for run in runs:
        path = Path(run) / "metrics.jsonl"
        if not path.is_file():
            raise MissingFileError(
                f"{run} must be the folder of a training run, but it has no metrics.jsonl."
            )
        entries = [entry for entry in read_json_lines(path) if "validation_loss" in entry]
        if not entries:
            raise UserError(
                f"{run} must have a validation, got none. Give validation text to the recipe."
            )
        row: dict[str, Any] = {"run": str(run)}
        for name in ("step", "minutes", "validation_loss", "bleu", "chrf"):
            row[name] = entries[-1].get(name)
        rows.append(row)
    return rows
