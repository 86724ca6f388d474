"""The stress tables in a model card, from the records of `check-model --name`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vanilla_transformer.text.translation_warnings import WARNINGS

_FOLDER = "stress_tables"


def read_stress_tables(run: str | Path) -> list[dict[str, Any]]:
    """Return the recorded stress tables with their values as text, for the template of the card.

    Each has `name`, `header`, `rows`, and for calibrated models `correlation` and `groups`, else None and [].
    """
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((Path(run) / _FOLDER).glob("*.json"))]
    return [_as_text(record) for record in records]


def _as_text(record: Mapping[str, Any]) -> dict[str, Any]:
    correlation = record["rows"][0]["correlation"]
    return {
        "name": record["name"],
        "header": [
            "text",
            "pairs",
            "BLEU",
            "change",
            "chrF",
            "change",
            *(f"{name} %" for name in WARNINGS),
            "confidence",
        ],
        "rows": [_row(row) for row in record["rows"]],
        "correlation": None if correlation is None else f"{correlation:.2f}",
        "groups": [[f"{value:.2f}" for value in group] for group in record["groups"]],
    }


def _row(row: Mapping[str, Any]) -> list[str]:
    scores = [
        text for name in ("bleu", "chrf") for text in (f"{row[name]:.2f}", _or_dash(row[f"{name}_change"], "+.2f"))
    ]
    warnings = [f"{100 * row['warnings'][name]:.1f}" for name in WARNINGS]
    return [row["name"], str(row["pairs"]), *scores, *warnings, _or_dash(row["confidence"], ".2f")]


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
