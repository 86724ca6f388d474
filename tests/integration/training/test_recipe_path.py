"""The path of a recipe through the package: a reader meets few modules, and seldom one that was
left before.
"""

import sys

from tests.tiny_runs import flags
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


def modules_given_recipe(recipe):
    """Train, and return the modules whose functions are called with the recipe or one of its
    sections, in order.
    """
    parts = {id(recipe), *map(id, vars(recipe).values())}
    path = []

    def record(frame, event, _):
        module, code = frame.f_globals.get("__name__") or "", frame.f_code
        if event == "call" and module.startswith("vanilla_transformer") and path[-1:] != [module]:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(id(frame.f_locals.get(name)) in parts for name in names):
                path.append(module)

    sys.setprofile(record)
    try:
        train(recipe)
    finally:
        sys.setprofile(None)
    return path


def test_train_passes_recipe_through_few_modules(corpus, tmp_path):
    path = modules_given_recipe(
        parse_recipe(flags(corpus, tmp_path / "run", cache_dir=tmp_path / "cache"))
    )
    assert path[0] == "vanilla_transformer.training.trainer"
    assert len(set(path)) <= 11
    assert len(path) <= 14  # with returns to a module that was left
