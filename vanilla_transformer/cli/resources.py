"""Recipes and card templates that are installed with the package."""

from pathlib import Path

import vanilla_transformer

_PACKAGE = Path(vanilla_transformer.__file__).parent


def resource_folder(name: str) -> Path:
    """Return the folder `recipes` or `model_card`: inside an installed wheel, or at the root of the repository."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def find_recipe(name_or_path: str) -> Path:
    """Return the path of a recipe given by the name of a packaged one, such as "small", or by its path.

    Raises:
        ValueError: it is not a path, and no packaged recipe has this name.
    """
    path = Path(name_or_path)
    if path.name != name_or_path or path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    recipes = {recipe.stem: recipe for recipe in sorted(resource_folder("recipes").glob("*.yaml"))}
    if name_or_path not in recipes:
        raise ValueError(f"There is no recipe {name_or_path!r}. Name a YAML file, or one of {', '.join(recipes)}.")
    return recipes[name_or_path]
