import pytest
import torch

from vanilla_transformer.decoding.engine import compiled_steps
from vanilla_transformer.decoding.engine.compiled_steps import cache_folder, write_packages

NAMES = {"few_rows": "a", "many_rows": "b"}


@pytest.fixture
def compilations(tmp_path, monkeypatch):
    """Record the forms of each compilation, which writes a file instead."""
    made = []

    def write(step, arguments, dimensions, folders):
        made.append([*folders])
        for kind, folder in folders.items():
            (folder / "step.pt2").write_text(kind)

    monkeypatch.setattr(compiled_steps, "compile_step", write)
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    return made


def stored():
    return {path.name: (path / "step.pt2").read_text() for path in cache_folder().iterdir() if path.is_dir()}


def test_write_packages_compiles_all_forms_at_once(compilations):
    write_packages(torch.nn.Identity(), (), (), NAMES)
    assert compilations == [["few_rows", "many_rows"]]
    assert stored() == {"a": "few_rows", "b": "many_rows"}


@pytest.mark.parametrize("kind", NAMES)
def test_write_packages_compiles_only_the_form_that_is_missing(compilations, kind):
    write_packages(torch.nn.Identity(), (), (), {kind: NAMES[kind]})
    write_packages(torch.nn.Identity(), (), (), NAMES)
    assert compilations == [[kind], [each for each in NAMES if each != kind]]
    assert stored() == {"a": "few_rows", "b": "many_rows"}
