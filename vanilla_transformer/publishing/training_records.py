"""Read the records of training for the card: the learning curve, and the emissions that codecarbon measured."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS, EMISSIONS, CURVE = "metrics.jsonl", "emissions.csv", "learning_curve.png"
_MOST_POINTS = 12
_GRAMS_PER_KILOGRAM = 1000


def read_validations(run: Path) -> list[dict[str, Any]]:
    """Return the validations that the metrics hold; the last one is the final model's."""
    path = run / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [entry for entry in map(json.loads, lines) if "validation_loss" in entry]


def learning_curve(validations: list[dict[str, Any]]) -> list[list[str]]:
    """Return rows of step, minutes, validation loss, BLEU and chrF: some of many validations, and the last one."""
    validations = [entry for entry in validations if "model" not in entry or entry is validations[-1]]
    count = len(validations)
    shown = min(count, _MOST_POINTS)
    places = {round(number * (count - 1) / max(1, shown - 1)) for number in range(shown)}
    return [_row(validations[place]) for place in sorted(places)]


def _row(entry: Mapping[str, Any]) -> list[str]:
    scores = [f"{entry[name]:.2f}" if name in entry else "–" for name in ("bleu", "chrf")]
    return [f"{entry['step']:,}", f"{entry['minutes']:.1f}", f"{entry['validation_loss']:.3f}", *scores]


def read_emissions(run: Path, hardware: str, is_fine_tuned: bool) -> dict[str, Any] | None:
    """Return the emissions as the Hub's metadata names them, in grams, or None if they were not measured.

    A run that was resumed has several trackers, of each of which the last line counts.
    """
    path = run / EMISSIONS
    if not path.exists():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    last = {row["run_id"]: row for row in rows}
    if not last:
        return None
    places = [", ".join(filter(None, (row.get("region"), row.get("country_name")))) for row in last.values()]
    grams = _GRAMS_PER_KILOGRAM * sum(float(row["emissions"]) for row in last.values())
    found = {
        "emissions": float(f"{grams:.3g}"),
        "source": "codecarbon",
        "training_type": "fine-tuning" if is_fine_tuned else "pre-training",
        "geographical_location": "; ".join(dict.fromkeys(filter(None, places))),
        "hardware_used": hardware,
    }
    return {name: value for name, value in found.items() if value != ""}


__all__ = ["CURVE", "learning_curve", "read_emissions", "read_validations"]
