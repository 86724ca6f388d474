"""Lines by folder: numbers that only go down. A change that removes lines lowers its number here."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = {
    "vanilla_transformer/*.py": 4418,
    "vanilla_transformer/cli": 2001,
    "vanilla_transformer/data": 4326,
    "vanilla_transformer/decoding": 7241,
    "vanilla_transformer/evaluation": 1574,
    "vanilla_transformer/extensions": 15715,
    "vanilla_transformer/publishing": 1190,
    "vanilla_transformer/text": 1334,
    "vanilla_transformer/training": 4998,
    "vanilla_transformer/utils": 2219,
    "tests": 56547,
    "docs/*.md": 4526,
}
SLACK = 50  # lines that a number may be too high, so that not every change edits it


def count_lines(place):
    files = ROOT.glob(place) if "*" in place else (ROOT / place).rglob("*.py")
    return sum(path.read_text(encoding="utf-8").count("\n") for path in files)


def test_each_folder_of_the_package_has_a_number():
    folders = {path.parent.name for path in (ROOT / "vanilla_transformer").glob("*/__init__.py")}
    assert folders == {Path(place).name for place in LINES if place.startswith("vanilla_transformer/")} - {"*.py"}


@pytest.mark.parametrize("place", LINES)
def test_number_of_lines_only_goes_down(place):
    lines = count_lines(place)
    assert lines <= LINES[place], f"{place} grew. What does the change make unnecessary?"
    assert lines >= LINES[place] - SLACK, f"{place} shrank: write {lines} here."
