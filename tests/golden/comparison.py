"""Compare an answer with the stored one: everything exactly, but floats within a tolerance."""

import json
import math
from pathlib import Path
from typing import Any

from .cases import SUBJECTS
from .doors import Doors

ANSWERS = Path(__file__).parent / "answers"
_RELATIVE, _ABSOLUTE = 1e-3, 2e-4


def answer(doors: Doors, subject: str, name: str) -> Any:
    """Return the answer to a case."""
    arguments = dict(SUBJECTS[subject][name])
    door = arguments.pop("door")
    return getattr(doors, door)(**arguments)


def find_difference(found: Any, expected: Any, place: str = "") -> str | None:
    """Return the first difference of two answers, or None."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if [*found] != [*expected]:
            return f"{place}: entries {[*found]} instead of {[*expected]}"
        pairs = [(found[name], expected[name], f"{place}.{name}") for name in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{place}: {found} instead of {expected}"
        pairs = [
            (*pair, f"{place}[{index}]")
            for index, pair in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return (
            None if _are_equal(found, expected) else f"{place}: {found!r} instead of {expected!r}"
        )
    return next((each for pair in pairs if (each := find_difference(*pair)) is not None), None)


def read_answers(subject: str) -> dict[str, Any]:
    """Return the stored answers by the names of their cases."""
    path = ANSWERS / f"{subject}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_answers(subject: str, answers: dict[str, Any]) -> None:
    """Store answers, with a line for each entry of a list or an object."""
    blocks = [f"{_in_json(name)}: {_in_lines(each)}" for name, each in answers.items()]
    ANSWERS.mkdir(exist_ok=True)
    (ANSWERS / f"{subject}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def _are_equal(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return found == expected


def _in_lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_in_json, value)) + "\n]"
    if isinstance(value, dict) and value:
        return (
            "{\n"
            + ",\n".join(f"{_in_json(name)}: {_in_lines(each)}" for name, each in value.items())
            + "\n}"
        )
    return _in_json(value)


def _in_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
