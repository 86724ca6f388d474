"""The structure of the repository: imports point one way, Hub modules stand alone, scripts and CI
are thin.
"""

import ast
import json
import re
import sys
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from tests.tiny import (
    tiny_config,
    tiny_decoder_config,
    tiny_encoder_config,
    tiny_long_config,
    tiny_long_decoder_config,
)
from vanilla_transformer import extensions

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vanilla_transformer"
NOT_ON_THE_HUB = {"__init__", "__main__", "registration"}
HUB_MODULES = {path.stem for path in PACKAGE.glob("*.py")} - NOT_ON_THE_HUB
CONFIGURATIONS = [tiny_config, tiny_decoder_config, tiny_encoder_config]
CONFIGURATIONS += [tiny_long_config, tiny_long_decoder_config]
# Lists of statements, and of handlers and cases, which hold statements
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
# The expression by which transformers finds the siblings of a module that travel with a checkpoint.
RELATIVE_IMPORT = re.compile(r"^\s*from\s+\.(\S+)\s+import", re.MULTILINE)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# Three rings. Hub modules import only each other. The core is for every reader: cli → the three
# that do the work → data and decoding → text, the tools and Hub modules; the three meet in files on
# disk and do not import each other, but training calls evaluation, inside a function, to score and
# to draw, and publishing has its names of metrics. An extension may import the core. `USES` lists who else imports an extension, inside a
# function.
EXTENSIONS = {f"extensions.{name}" for name in extensions.EXTENSIONS}
TOOLS = {"files", "loading", "machine", "user_input"}
FOUNDATIONS = {"data", "decoding", "text", "hub"} | TOOLS
WORKERS = {"training", "evaluation", "publishing"}
CORE = {"cli"} | WORKERS | FOUNDATIONS
ALLOWED = {
    "hub": {"hub"},
    "files": {"files"},
    "machine": {"machine"},
    "user_input": {"user_input"},
    "loading": {"loading", "files", "user_input"},
    "text": {"text"} | TOOLS,
    "decoding": {"decoding", "text", "hub"} | TOOLS,
    "data": {"data", "text", "hub"} | TOOLS,
    **{worker: {worker} | FOUNDATIONS for worker in WORKERS},
    "training": {"training", "evaluation"} | FOUNDATIONS,
    "publishing": {"publishing", "evaluation"} | FOUNDATIONS,
    "cli": {"package", "extensions"} | CORE,
    "extensions": set(),
    **{extension: {extension} | CORE for extension in EXTENSIONS},
    "__main__": {"cli"},
    "package": {"package", "hub", "decoding"} | TOOLS,
}
USES = {
    "cli.flags": {"memory", "scale_out"},
    "cli.publish": {"quality"},
    "cli.translate": {"documents"},
    "data.cleaning": {"cleaning"},
    "data.prepare_data": {"alignments", "augmentation", "cleaning"},
    "decoding.engine.engine_pool": {"conversion"},
    "decoding.open_pipeline": {"scale_out"},
    "decoding.translation_pipeline": {"memory", "reranking", "terms"},
    "evaluation.named_metrics": {"quality"},
    "publishing.marian_branch": {"conversion"},
    "training.initialization": {"conversion"},
    "training.loss": {"alignments"},
    "extensions.cleaning.low_scores": {"quality"},
    "extensions.conversion.shortlist": {"alignments"},
    "extensions.distillation.teacher": {"quality"},
    "extensions.preparation.preparation": {"scale_out"},
    "extensions.quality.language_check": {"augmentation"},
    "extensions.quality.stress": {"augmentation"},
    "extensions.reranking.reranking": {"quality"},
    "extensions.serving.commands": {"documents", "memory"},
    "extensions.serving.document_processes": {"documents"},
    "extensions.serving.models": {"documents"},
    "extensions.serving.service": {"documents", "memory"},
}


def layer(module: str) -> str:
    """Return the layer of a module from its dotted name below `vanilla_transformer`."""
    first, *rest = module.split(".")
    if first in HUB_MODULES:
        return "hub"
    if first == "extensions" and rest and rest[0]:
        return f"extensions.{rest[0]}"
    return first if first in ALLOWED else "package"


def imports(path: Path, by_functions: bool = False) -> set[str]:
    """Return the modules of this package that a file, or its functions, import, as dotted names
    below it.
    """
    outside, inside = import_statements(path)
    return modules_of(path, inside if by_functions else outside)


@cache
def import_statements(path: Path) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return the imports of a file outside of its functions and within them."""
    outside: list[ast.AST] = []
    inside: list[ast.AST] = []
    blocks: list[tuple[ast.AST, list[ast.AST]]] = [(parse(path), outside)]
    while blocks:
        block, statements = blocks.pop()
        for node in chain.from_iterable(getattr(block, name, ()) for name in BLOCKS):
            if isinstance(node, ast.Import | ast.ImportFrom):
                statements.append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                blocks.append((node, inside))
            else:
                blocks.append((node, statements))
    return outside, inside


def module_of(path: Path, node: ast.ImportFrom) -> str:
    """Return the name of the module from which a file imports, below the repository."""
    folders = path.relative_to(ROOT).parts[:-1]
    parents = folders[: len(folders) - node.level + 1] if node.level else ()
    parts = node.module.split(".") if node.module else []
    return ".".join([*parents, *parts])


def modules_of(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """Return the modules of this package that some nodes of a file import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names.add(module_of(path, node))
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name for name in names if name.split(".")[0] == PACKAGE.name}
    return {name.removeprefix(PACKAGE.name).lstrip(".") for name in ours}


def dotted_name(path: Path) -> str:
    """Return the name of a module below `vanilla_transformer`, which ends with a dot if it is a
    folder.
    """
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__")


def find_circle(files: Iterable[Path]) -> list[str]:
    """Return modules of which each imports the next one, maybe within a function, and the last one
    is the first again.
    """
    graph = {}
    for path in files:
        outside, inside = import_statements(path)
        for_types = set()
        for block in parse(path).body:
            if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
                for_types |= {*ast.walk(block)}
        name = dotted_name(path).rstrip(".")
        modules = modules_of(path, {*outside, *inside} - for_types)
        graph[name] = {module.rstrip(".") for module in modules} - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def carried_with(configuration) -> set[str]:
    """Return the modules that a checkpoint with `configuration` carries."""
    content = configuration.to_dict()
    text = json.dumps([content.get("auto_map"), content.get("custom_pipelines")])
    modules, queue = set(), re.findall(r'"(\w+)\.\w+"', text)
    while queue:
        name = queue.pop()
        if name not in modules:
            modules.add(name)
            queue += RELATIVE_IMPORT.findall((PACKAGE / f"{name}.py").read_text())
    return modules


def test_imports_point_one_way():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = dotted_name(path)
        allowed = ALLOWED[layer(name)]
        uses = allowed | {f"extensions.{extension}" for extension in USES.get(name, ())}
        checks = [(allowed, imports(path)), (uses, imports(path, by_functions=True))]
        for layers, modules in checks:
            others = [module for module in modules if layer(module) not in layers]
            wrong += [(name, module) for module in others if module != "errors"]
    assert not wrong, "modules, and imports that their layers must not have"


def test_modules_import_in_no_circle():
    assert find_circle(sorted(PACKAGE.rglob("*.py"))) == []


def test_each_extension_has_a_row_a_folder_a_page_and_tests():
    folders = {path.parent.name for path in (PACKAGE / "extensions").glob("*/__init__.py")}
    assert folders == extensions.EXTENSIONS.keys()
    assert all((ROOT / "docs" / row.page).is_file() for row in extensions.EXTENSIONS.values())
    tests = (ROOT / "tests" / "extensions").glob("*/*/test_*.py")
    assert folders == {path.parents[1].name for path in tests}


def test_hub_modules_are_carried_by_some_checkpoint():
    carried = set.union(*(carried_with(configuration()) for configuration in CONFIGURATIONS))
    assert carried | {"tokenization_vanilla_transformer"} == HUB_MODULES


def test_hub_modules_import_each_other_only_as_siblings():
    for name in HUB_MODULES:
        text = (PACKAGE / f"{name}.py").read_text()
        assert not re.search("(import|from) vanilla_transformer", text)
        of_siblings = re.search(r"^\s*from \. import", text, re.MULTILINE)
        assert not of_siblings, "transformers would not copy that file"
        assert set(RELATIVE_IMPORT.findall(text)) <= HUB_MODULES


def test_scripts_define_nothing():
    for path in (ROOT / "scripts").glob("*.py"):
        kinds = {type(node) for node in parse(path).body}
        assert kinds <= {ast.Expr, ast.Import, ast.ImportFrom, ast.If}, path.name


def test_threads_that_outlive_the_main_one_only_wait_for_the_parent():
    """The others are joined.

    A thread that returns from C++ code while the interpreter ends aborts the process.
    """
    daemon = re.compile(r"daemon\s*=\s*True")
    modules = PACKAGE.rglob("*.py")
    daemons = {path.name for path in modules if daemon.search(path.read_text())}
    processes = {"document_process.py"}  # which the parent ends
    assert daemons == {"data_loader.py", "engine_workers.py"} | processes


def test_each_progress_bar_says_when_it_is_hidden():
    names = ("tqdm", "logging.tqdm")
    bars = []
    paths = [path for path in PACKAGE.rglob("*.py") if "tqdm" in path.read_text()]
    for path in paths:
        calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
        bars += [call for call in calls if ast.unparse(call.func) in names]
    assert len(bars) > 5
    for bar in bars:  # by default tqdm fills log files
        assert "disable" in [keyword.arg for keyword in bar.keywords], ast.unparse(bar)


def test_ci_runs_make_test_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[-1] == "make test"
    assert all(command.startswith(("set ", "cd ")) for command in commands[:-1])


def test_tests_import_helpers_only():
    tests = (ROOT / "tests").rglob("test_*.py")
    folders = "unit|integration|slow|gpu|extensions"
    imported = re.compile(rf"from tests\.({folders})\b|from tests\.?\S*\btest_")
    importers = [path.name for path in tests if imported.search(path.read_text())]
    assert importers == ["test_gpu_tests.py"]  # which runs tests of a GPU on a stand-in


def test_slow_tests_are_in_folders_named_slow():
    paths = (ROOT / "tests").rglob("*.py")
    others = [path for path in paths if {"unit", "integration"} & {*path.parts}]
    marker = re.compile(r"pytest\.mark\.slow")
    assert [path.name for path in others if marker.search(path.read_text())] == []


def imported_with(path: Path) -> set[str]:
    """Return the modules that are imported with a file, outside of its functions, as dotted
    names.
    """
    names = set()
    for node in parse(path).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = module_of(path, node)
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def needed_by(paths: list[Path]) -> tuple[set[Path], set[str]]:
    """Return the files of this repository, and the packages, that are imported with some files, and
    these files.
    """
    queue, seen, packages = [*paths], set(paths), set()
    while queue:
        for name in imported_with(queue.pop()):
            location = ROOT.joinpath(*name.split("."))
            candidates = [location.with_suffix(".py"), location / "__init__.py"]
            files = {path for path in candidates if path.is_file()}
            queue += files - seen
            seen |= files
            packages.add(name.split(".")[0])
    ours = {"tests", "benchmarks", "vanilla_transformer"}
    return seen, packages - ours - sys.stdlib_module_names


def packages_needed_by(paths: list[Path]) -> set[str]:
    return needed_by(paths)[1]


def test_trainer_needs_a_part_of_the_package_and_no_engine():
    """Augmentation and other capabilities are imported when a recipe asks for them."""
    files, _ = needed_by([PACKAGE / "training" / "trainer.py"])
    assert len(files) <= 80
    assert not [path for path in files if "decoding" in path.parts]
    folder = PACKAGE / "evaluation"
    scoring, _ = needed_by([folder / "scores.py", folder / "pair_scores.py"])
    assert not [path for path in scoring if path.parent.name == "engine"]


FEW_PACKAGES = {"torch", "transformers", "accelerate", "tokenizers", "safetensors"}
FEW_PACKAGES |= {"numpy", "pydantic", "pytest"}
# What these need.
FEW_PACKAGES |= {"annotated_types", "filelock", "huggingface_hub", "regex"}
FEW_PACKAGES |= {"tqdm", "yaml"}


def test_gpu_tests_need_few_packages():
    """They run on machines with few packages, without the fixtures of `tests/fixtures.py`."""
    paths = [*(ROOT / "tests" / "gpu").rglob("*.py")]
    assert {"torch", "transformers"} <= packages_needed_by(paths) <= FEW_PACKAGES


def test_make_gpu_needs_few_packages():
    paths = [ROOT / "benchmarks" / "bench_gpu.py", *(ROOT / "benchmarks").glob("gpu_*.py")]
    assert {"torch", "transformers"} <= packages_needed_by(paths) <= FEW_PACKAGES


STEPS = ("distributed", "model_creation", "train_state", "train_step")
READY_BATCHES = [f"training/{name}" for name in STEPS]


@pytest.mark.parametrize("name", [*READY_BATCHES, "data/demo_corpus"])
def test_training_on_ready_batches_needs_few_packages(name):
    assert packages_needed_by([PACKAGE / f"{name}.py"]) <= FEW_PACKAGES
