"""Compare an answer with the stored one: everything exactly, but floats within a tolerance."""

import json
import math
from itertools import starmap
from pathlib import Path
from typing import Any

from .cases import SUBJECTS
from .doors import Doors

Json = dict[str, Any] | list[Any] | str | float | bool | None
ANSWERS = Path(__file__).parent / "answers"
_RELATIVE, _ABSOLUTE = 1e-3, 2e-4


def answer(doors: Doors, subject: str, name: str) -> Any:
    """Return the answer to a case."""
    arguments = dict(SUBJECTS[subject][name])
    door = arguments.pop("door")
    return getattr(doors, door)(**arguments)


def find_difference(new: Json, expected: Json, path: str = "") -> str | None:
    """Return the first difference of two answers, or None."""
    pairs = list[tuple[Json, Json, str]]()
    if isinstance(expected, dict) and isinstance(new, dict):
        if [*new] != [*expected]:
            return f"{path}: entries {[*new]} instead of {[*expected]}"
        for name, value in expected.items():
            pairs.append((new[name], value, f"{path}.{name}"))
    elif isinstance(expected, list) and isinstance(new, list):
        if len(new) != len(expected):
            return f"{path}: {new} instead of {expected}"
        for index, value in enumerate(expected):
            pairs.append((new[index], value, f"{path}[{index}]"))
    elif not _are_equal(new, expected):
        return f"{path}: {new!r} instead of {expected!r}"
    differences = starmap(find_difference, pairs)
    return next(filter(None, differences), None)


def read_answers(subject: str) -> dict[str, Any]:
    """Return the stored answers by the names of their cases."""
    path = ANSWERS / f"{subject}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_answers(subject: str, answers: dict[str, Any]) -> None:
    """Store answers, with a line for each entry of a list or an object."""
    ANSWERS.mkdir(exist_ok=True)
    (ANSWERS / f"{subject}.json").write_text(f"{_in_lines(answers)}\n", encoding="utf-8")


def _are_equal(new: Json, expected: Json) -> bool:
    if type(new) is not type(expected):
        return False
    if isinstance(expected, float) and isinstance(new, float):
        return math.isclose(new, expected, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return new == expected


def _in_lines(value: Json) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_in_json, value)) + "\n]"
    if isinstance(value, dict) and value:
        lines = [f"{_in_json(name)}: {_in_lines(entry)}" for name, entry in value.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    return _in_json(value)


def _in_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
