#!/usr/bin/env python3
"""Measure how densely code is written, and print the statements that are hardest to step through.

    python tools/density.py                                     # the package
    python tools/density.py --folder tests --worst 50           # another folder

A debugger stops once at a simple statement, which holds no other statement. Imports and docstrings
do not count as such.
"""

import argparse
import ast
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NARROW, WIDE = 88, 120  # columns
VAGUE_NAMES = frozenset({"each", "found", "rule", "place", "own", "its", "some", "given"})
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Density:
    """Figures of a folder. Lower is easier to read.

    Attributes:
        lines_by_width: Lines of code when formatted at 88 columns over those at 120, without
            docstrings, comments and blank lines.
        comprehensions: Per 1,000 simple statements.
        nested_comprehensions: Comprehensions that hold another one, per 1,000 simple statements.
        conditional_expressions: Per 1,000 statements.
        nodes: Number of nodes in the syntax tree of a simple statement, 90th percentile.
        vague_names: Variables and parameters whose names tell nothing.
        bare_any: Annotated parameters of type `Any`, in percent.
    """

    lines_by_width: float
    comprehensions: float
    nested_comprehensions: float
    conditional_expressions: float
    nodes: int
    vague_names: int
    bare_any: float


def measure(folder: Path) -> Density:
    """Measure the Python files of a folder."""
    trees = read_trees(folder)
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    # A docstring and a comment have as many lines at each width.
    other_lines = sum(count_other_lines(path, tree) for path, tree in trees.items())
    narrow, wide = (count_lines_at(folder, width) - other_lines for width in (NARROW, WIDE))
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    sizes = sorted(count_nodes(node) for node in statements if is_simple(node))
    comprehensions = [node for node in nodes if isinstance(node, COMPREHENSIONS)]
    nested = [node for node in comprehensions if holds_comprehension(node)]
    conditionals = [node for node in nodes if isinstance(node, ast.IfExp)]
    annotations = [annotation for node in nodes for annotation in parameter_types(node)]
    return Density(
        lines_by_width=narrow / wide,
        comprehensions=1000 * len(comprehensions) / len(sizes),
        nested_comprehensions=1000 * len(nested) / len(sizes),
        conditional_expressions=1000 * len(conditionals) / len(statements),
        nodes=sizes[int(0.9 * len(sizes))],
        vague_names=sum(is_vague_name(node) for node in nodes),
        bare_any=100 * annotations.count("Any") / max(1, len(annotations)),
    )


def read_trees(folder: Path) -> dict[Path, ast.Module]:
    """Parse the Python files of a folder."""
    paths = sorted(folder.rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def is_simple(node: ast.stmt) -> bool:
    """Return whether a statement holds no other one, and is no import and no docstring."""
    if isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node):
        return False
    return not any(isinstance(child, ast.stmt) for child in ast.iter_child_nodes(node))


def is_docstring(node: ast.AST) -> bool:
    """Return whether a statement is a string alone."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def count_nodes(statement: ast.stmt) -> int:
    """Count the nodes of the syntax tree of a statement, with itself."""
    return sum(1 for _ in ast.walk(statement))


def holds_comprehension(comprehension: ast.AST) -> bool:
    """Return whether another comprehension is within this one."""
    descendants = ast.walk(comprehension)
    next(descendants)  # the comprehension itself
    return any(isinstance(node, COMPREHENSIONS) for node in descendants)


def parameter_types(node: ast.AST) -> list[str]:
    """Return the types of the annotated parameters of a function, as they are written."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [ast.unparse(parameter.annotation) for parameter in parameters if parameter.annotation]


def is_vague_name(node: ast.AST) -> bool:
    """Return whether a node names a variable or a parameter, and the name tells nothing."""
    if isinstance(node, ast.arg):
        return node.arg in VAGUE_NAMES
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id in VAGUE_NAMES
    return False


def count_lines_at(folder: Path, width: int) -> int:
    """Count the lines of a folder that are not blank, as `ruff format` writes them at a width."""
    ruff = Path(sysconfig.get_path("scripts")) / "ruff"
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / folder.name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
        options = ["--quiet", "--isolated", f"--line-length={width}"]
        # A trailing comma, which a narrower layout left, would keep its lines apart.
        options += ["--config", "format.skip-magic-trailing-comma=true"]
        subprocess.run([ruff, "format", *options, copy], check=True)
        lines = [line for path in copy.rglob("*.py") for line in read_lines(path)]
        return sum(bool(line.strip()) for line in lines)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


def count_other_lines(path: Path, tree: ast.Module) -> int:
    """Count the lines of a file that are docstrings or comments, and not blank."""
    docstring_lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and is_docstring(node):
            docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    count = 0
    for number, line in enumerate(read_lines(path), start=1):
        is_comment = line.lstrip().startswith("#")
        if line.strip() and (is_comment or number in docstring_lines):
            count += 1
    return count


def worst_statements(folder: Path) -> Iterator[tuple[int, Path, int]]:
    """Yield number of nodes, file and line of simple statements, the largest first.

    A nested comprehension weighs as much as 100 nodes. Tables of constants are left out.
    """
    weighted: list[tuple[int, int, Path, int]] = []
    for path, tree in read_trees(folder).items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.stmt) or not is_simple(node) or node in tree.body:
                continue
            parts = [part for part in ast.walk(node) if isinstance(part, COMPREHENSIONS)]
            nested = sum(holds_comprehension(part) for part in parts)
            size = count_nodes(node)
            weighted.append((size + 100 * nested, size, path, node.lineno))
    for _, size, path, line in sorted(weighted, reverse=True):
        yield size, path, line


def main() -> None:
    """Print the figures of a folder and its worst statements."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--folder", default="vanilla_transformer", help="of the repository")
    parser.add_argument("--worst", type=int, default=20, help="number of statements to print")
    options = parser.parse_args()
    folder = ROOT / options.folder
    for name, figure in asdict(measure(folder)).items():
        print(f"{name:24} {figure:.2f}" if isinstance(figure, float) else f"{name:24} {figure}")
    statements = worst_statements(folder)
    for _ in range(options.worst):
        size, path, line = next(statements)
        print(f"{size:5} nodes  {path.relative_to(ROOT)}:{line}")


if __name__ == "__main__":
    main()
