"""What holds the code together: arrows point one way, files that travel stand alone, texts and code agree."""

import ast
import re
from pathlib import Path

import pytest

import vanilla_transformer

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vanilla_transformer"
NOT_ON_THE_HUB = {"__init__", "__main__", "registration", "file_utils", "import_utils"}
HUB_MODULES = {path.stem for path in PACKAGE.glob("*.py")} - NOT_ON_THE_HUB
# Who may import whom. The middle packages meet in files on disk, and share how those are written.
ALLOWED = {
    "hub": {"hub"},
    "file_utils": set(),
    "import_utils": set(),
    "data": {"data", "hub", "file_utils", "import_utils"},
    "training": {"training", "data", "hub", "file_utils", "import_utils"},
    "evaluation": {"evaluation", "hub", "file_utils", "import_utils"},
    "publishing": {"publishing", "hub", "file_utils", "import_utils"},
    "conversion": {"conversion", "hub", "file_utils", "import_utils"},
    "serving": {"serving", "hub"},
    "cli": {"cli", "data", "training", "evaluation", "publishing", "conversion", "serving"}
    | {"hub", "file_utils", "import_utils", "package"},
    "__main__": {"cli"},
    "package": {"hub", "package"},
}


def layer(module: str) -> str:
    """The layer of a module by its dotted name below `vanilla_transformer`."""
    first = module.split(".")[0]
    if first in HUB_MODULES:
        return "hub"
    return first if first in ALLOWED else "package"


def imports(path: Path) -> set[str]:
    """Modules of this package that a file imports, as dotted names below it."""
    here = path.relative_to(PACKAGE).with_suffix("").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.add(".".join([*here[: len(here) - node.level + 1], *(node.module or "").split(".")]))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vanilla_transformer"):
            found.add(node.module.removeprefix("vanilla_transformer").lstrip("."))
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("vanilla_transformer").lstrip(".")
                for alias in node.names
                if alias.name.split(".")[0] == "vanilla_transformer"
            }
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_one_way(path):
    own = layer(".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__"))
    wrong = {module for module in imports(path) if layer(module) not in ALLOWED[own]}
    assert not wrong, f"{path.name} ({own}) must not import {wrong}"


def test_the_hub_modules_are_those_that_travel():
    kinds = ("configuration", "generation", "linear", "modeling", "pipeline", "search", "tokenization")
    kinds += ("configuration_vanilla_transformer_decoder", "configuration_vanilla_transformer_long")
    kinds += ("modeling_vanilla_transformer_decoder", "modeling_vanilla_transformer_long")
    attentions = {"linear_attention", "lsh_attention", "transfo_xl_attention", "reversible"}
    names = {kind if "vanilla" in kind else f"{kind}_vanilla_transformer" for kind in kinds}
    assert names | attentions == HUB_MODULES


def test_hub_modules_import_each_other_only_as_siblings():
    for name in HUB_MODULES:
        text = (PACKAGE / f"{name}.py").read_text()
        assert "import vanilla_transformer" not in text and "from vanilla_transformer" not in text
        assert not re.search(r"^\s*from \. import", text, re.MULTILINE), "transformers would leave that file behind"
        assert set(re.findall(r"^\s*from\s+\.(\S+)\s+import", text, re.MULTILINE)) <= HUB_MODULES


def test_scripts_hold_nothing_but_a_call():
    for path in (ROOT / "scripts").glob("*.py"):
        assert len(path.read_text().splitlines()) < 12


def test_every_public_name_exists():
    assert all(hasattr(vanilla_transformer, name) for name in vanilla_transformer.__all__)


def test_ci_calls_make_test_and_nothing_that_a_user_could_not():
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[-1] == "make test"
    assert all(line.startswith(("set ", "cd ", "make ")) for line in lines)
