"""Recipes and card templates that are installed with the package."""

import re
from itertools import takewhile
from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource_folder(name: str) -> Path:
    """Return the folder `recipes` or `model_card`: inside an installed wheel, or at the root of the repository."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def find_recipe(name_or_path: str) -> Path:
    """Return the path of a recipe given by the name of a packaged one, such as "small", or by its path.

    Raises:
        ValueError: it is not a path, and no packaged recipe has this name.
    """
    return _find(name_or_path, "recipes", "recipe")


def describe_recipes() -> dict[str, str]:
    """Return the first sentence of the comment of each packaged recipe, by its name."""
    found = {}
    for path in sorted(resource_folder("recipes").glob("*.yaml")):
        lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
        found[path.stem] = re.split(r"[.:] ", " ".join(line[1:].strip() for line in lines))[0].rstrip(".")
    return found


def find_facts(name_or_path: str) -> Path:
    """Return the path of a file of facts given by the name of a packaged one, such as "wmt14_en_de", or by its path.

    Raises:
        ValueError: it is not a path, and no packaged file of facts has this name.
    """
    return _find(name_or_path, "model_card", "file of facts")


def _find(name_or_path: str, folder: str, kind: str) -> Path:
    path = Path(name_or_path)
    if path.name != name_or_path or path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    packaged = {each.stem: each for each in sorted(resource_folder(folder).glob("*.yaml"))}
    if name_or_path not in packaged:
        raise ValueError(f"There is no {kind} {name_or_path!r}. Name a YAML file, or one of {', '.join(packaged)}.")
    return packaged[name_or_path]
