"""Records of a model that its card shows: validations, emissions, evaluations and stress tables."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.json_files import read_json, read_json_lines

METRICS, EMISSIONS, CURVE = "metrics.jsonl", "emissions.csv", "learning_curve.png"
EVALUATIONS, STRESS_TABLES = "evaluations", "stress_tables"  # folders of the records with a name
_MOST_POINTS = 12
_GRAMS_PER_KILOGRAM = 1000


def read_validations(run: Path) -> list[dict[str, Any]]:
    """Return the validations that the metrics hold; the last one is the final model's."""
    path = run / METRICS
    if not path.exists():
        return []
    return [entry for entry in read_json_lines(path) if "validation_loss" in entry]


def learning_curve(validations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return some of many validations, without validations of other models, and the last one."""
    points: list[dict[str, Any]] = []
    for entry in validations:
        if "model" not in entry or entry is validations[-1]:
            points.append(entry)
    shown = min(len(points), _MOST_POINTS)
    last = len(points) - 1
    indexes = {round(n * last / max(1, shown - 1)) for n in range(shown)}
    return [points[index] for index in sorted(indexes)]


def read_emissions(run: Path, hardware: str, is_fine_tuned: bool) -> dict[str, Any] | None:
    """Return the emissions as the Hub's metadata names them, in grams, or None if they were not
    measured.

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
    locations: dict[str, None] = {}
    for row in last.values():
        names = filter(None, (row.get("region"), row.get("country_name")))
        locations[", ".join(names)] = None
    grams = _GRAMS_PER_KILOGRAM * sum(float(row["emissions"]) for row in last.values())
    emissions = {
        "emissions": float(f"{grams:.3g}"),
        "source": "codecarbon",
        "training_type": "fine-tuning" if is_fine_tuned else "pre-training",
        "geographical_location": "; ".join(filter(None, locations)),
        "hardware_used": hardware,
    }
    return {name: value for name, value in emissions.items() if value != ""}


def check_record_name(name: str) -> None:
    """Check a name under which a record is saved in the model's folder for its card."""
    if not regex.fullmatch(r"[\w\p{N} .-]+", name):
        raise UserError(f"--name may hold letters, digits, spaces, '.', '_' and '-', got {name!r}.")


def save_record(folder: str | Path, kind: str, name: str, values: Mapping[str, Any]) -> None:
    """Save a record in a model's folder.

    Args:
        kind: `EVALUATIONS` or `STRESS_TABLES`.
        name: Name of the test set; see [`check_record_name`]. An earlier record of this name is
            replaced.
    """
    text = json.dumps({"name": name, **values}, indent=2, ensure_ascii=False)
    path = Path(folder) / kind / f"{name.replace(' ', '_')}.json"
    write_text_atomically(path, text + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """Return a record of a run; without its file, an empty one."""
    return read_json(path) if path.exists() else {}


def read_records(run: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind, see [`save_record`], by their name in order."""
    return [read_json(path) for path in sorted((run / kind).glob("*.json"))]
