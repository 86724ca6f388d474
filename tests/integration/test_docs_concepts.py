"""The pages on concepts quote the code as it is, and the headings of the troubleshooting page are
messages.
"""

import ast
import importlib
import inspect
import re
import textwrap

import pytest

from tests.docs_pages import ROOT, blocks

PAPER = ROOT / "docs" / "paper_in_code.md"


def quotations():
    for block in blocks(PAPER, "python"):
        if block.startswith("# vanilla_transformer."):
            name, quoted = block.removeprefix("# ").split("\n", maxsplit=1)
            yield pytest.param(name, quoted, id=name.removeprefix("vanilla_transformer."))


def source_of(name):
    """Return the source of a function or method, by its full name."""
    words = name.split(".")
    depth = next(
        index for index, word in enumerate(words) if word[:1].isupper() or index == len(words) - 1
    )
    found = importlib.import_module(".".join(words[:depth]))
    for word in words[depth:]:
        found = getattr(found, word)
    return textwrap.dedent(inspect.getsource(found))


@pytest.mark.parametrize(("name", "quoted"), quotations())
def test_paper_in_code_quotes_the_code(name, quoted):
    # The code is indented further, so its lines may be wrapped at other places.
    assert "".join(quoted.split()) in "".join(source_of(name).split())


def test_paper_in_code_shapes_are_the_ones_of_its_example():
    names = {}
    exec(
        next(block for block in blocks(PAPER, "python") if block.startswith("import torch")), names
    )
    rows = re.findall(
        r"^\| `([\w.\[\]-]+)`[^|]*\|[^|]*\| (\([\d, ]*\)) \|$", PAPER.read_text(), re.MULTILINE
    )
    assert len(rows) == 9
    for expression, shape in rows:
        assert tuple(eval(expression, names).shape) == ast.literal_eval(shape), expression


def test_paper_in_code_names_a_test_and_figures_for_each_claim():
    claims = [line for line in PAPER.read_text().splitlines() if "[`test_" in line]
    assert len(claims) > 12 and len({*claims}) == len(claims)
    for line in claims:
        name, path = re.search(r"\[`(test_\w+)`\]\(([^)]+)\)", line).groups()
        assert f"def {name}(" in (PAPER.parent / path).read_text(), name
    figures = [re.search(r"\(images/([^)]+)\)", line) for line in claims if "reproduce.md" in line]
    assert all(figures), "each experiment has a figure"
    experiments = {
        name for line in claims for name in re.findall(r"\[`([\w-]+)`\]\(reproduce", line)
    }
    scripts = (ROOT / "examples" / "reproduction").glob("*.py")
    names = {path.stem for path in scripts if "\nEXPERIMENT = " in path.read_text()}
    assert experiments == names - {"long_sequences"}, (
        "follow-up papers are in docs/long_sequences.md"
    )


def test_troubleshooting_headings_are_messages_of_the_package():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    headings = [line for line in re.findall(r"^### (.*)$", page, re.MULTILINE) if "…" in line]
    source = "\n".join(path.read_text() for path in (ROOT / "vanilla_transformer").rglob("*.py"))
    # Messages are cut into lines of code, and have values in them: compare each piece between two
    # values.
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    assert len(headings) >= 12
    for heading in headings:
        pieces = [piece.strip(" .,") for piece in heading.split("…")]
        assert all(piece in source for piece in pieces), heading
