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
            short = name.removeprefix("vanilla_transformer.")
            yield pytest.param(name, quoted, id=short)


def source_of(name):
    """Return the source of a function or method, by its full name."""
    words = name.split(".")
    classes = [index for index, word in enumerate(words) if word[:1].isupper()]
    depth = classes[0] if classes else len(words) - 1
    member = importlib.import_module(".".join(words[:depth]))
    for word in words[depth:]:
        member = getattr(member, word)
    return textwrap.dedent(inspect.getsource(member))


@pytest.mark.parametrize(("name", "quoted"), quotations())
def test_paper_in_code_quotes_the_code(name, quoted):
    # The code is indented further, so its lines may be wrapped at other places.
    assert "".join(quoted.split()) in "".join(source_of(name).split())


def test_paper_in_code_shapes_are_of_its_example():
    names = {}
    examples = blocks(PAPER, "python")
    exec(next(code for code in examples if code.startswith("import torch")), names)
    row = r"^\| `([\w.\[\]-]+)`[^|]*\|[^|]*\| (\([\d, ]*\)) \|$"
    rows = re.findall(row, PAPER.read_text(), re.MULTILINE)
    assert len(rows) == 9
    for expression, shape in rows:
        result = eval(expression, names)
        assert tuple(result.shape) == ast.literal_eval(shape), expression


def test_paper_in_code_names_a_test_and_figures_for_each_claim():
    claims = [line for line in PAPER.read_text().splitlines() if "[`test_" in line]
    assert len(claims) > 12 and len({*claims}) == len(claims)
    for line in claims:
        name, path = re.search(r"\[`(test_\w+)`\]\(([^)]+)\)", line).groups()
        assert f"def {name}(" in (PAPER.parent / path).read_text(), name
    experiments = set()
    for line in claims:
        experiments |= {*re.findall(r"\[`([\w-]+)`\]\(reproduce", line)}
        if "reproduce.md" in line:
            assert re.search(r"\(images/([^)]+)\)", line), "a figure of the experiment"
    scripts = (ROOT / "examples" / "reproduction").glob("*.py")
    names = {path.stem for path in scripts if "\nEXPERIMENT = " in path.read_text()}
    # Follow-up papers are in docs/long_sequences.md.
    assert experiments == names - {"long_sequences"}


def test_troubleshooting_headings_are_messages_of_the_package():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    headings = re.findall(r"^### (.*….*)$", page, re.MULTILINE)
    paths = (ROOT / "vanilla_transformer").rglob("*.py")
    source = "\n".join(path.read_text() for path in paths)
    # Messages are cut into lines of code, and have values in them: compare each piece between two
    # values.
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    assert len(headings) >= 12
    for heading in headings:
        pieces = [piece.strip(" .,") for piece in heading.split("…")]
        assert all(piece in source for piece in pieces), heading
