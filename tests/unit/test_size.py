"""Statements by folder.

A change that adds statements names its feature and what it deletes in its commit, and raises the
number here.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATEMENTS = {
    "vanilla_transformer/*.py": 2509,
    "vanilla_transformer/cli": 1647,
    "vanilla_transformer/data": 3684,
    "vanilla_transformer/decoding": 7750,
    "vanilla_transformer/evaluation": 1298,
    "vanilla_transformer/extensions": 13338,
    "vanilla_transformer/publishing": 965,
    "vanilla_transformer/text": 1322,
    "vanilla_transformer/training": 3215,
    "vanilla_transformer/files": 1029,
    "vanilla_transformer/loading": 166,
    "vanilla_transformer/machine": 299,
    "vanilla_transformer/user_input": 583,
    "tests": 47390,
}
# Lists of statements, and of handlers and cases, which hold statements
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
SLACK = 50  # statements that a number may be too high, so that not every change edits it


def count_statements(folder):
    paths = ROOT.glob(folder) if "*" in folder else (ROOT / folder).rglob("*.py")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return sum(count_in(tree) for tree in trees)


def count_in(block: ast.AST) -> int:
    """Count the statements in a block. Expressions, which hold none, are not walked."""
    count = 0
    for name in BLOCKS:
        for node in getattr(block, name, ()):
            count += isinstance(node, ast.stmt) + count_in(node)
    return count


def test_each_folder_of_the_package_has_a_number():
    folders = {path.parent.name for path in (ROOT / "vanilla_transformer").glob("*/__init__.py")}
    numbered = {
        Path(folder).name for folder in STATEMENTS if folder.startswith("vanilla_transformer/")
    }
    assert folders == numbered - {"*.py"}


@pytest.mark.parametrize("folder", STATEMENTS)
def test_statements_stay_within_their_number(folder):
    statements = count_statements(folder)
    assert statements <= STATEMENTS[folder], (
        f"{folder} grew. Which feature needs it, and what does it replace?"
    )
    assert statements >= STATEMENTS[folder] - SLACK, f"{folder} shrank: write {statements} here."
