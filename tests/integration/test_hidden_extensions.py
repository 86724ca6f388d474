"""An extension can be deleted, and the rest works."""

import pytest

from tests.processes import run_python
from tests.sweeps import sample
from vanilla_transformer.extensions import EXTENSIONS
from vanilla_transformer.loading.model_folders import save_model_folder


@pytest.mark.parametrize("name", sample(EXTENSIONS, "conversion"))
def test_core_works_without_an_extension(name, tiny_model, tiny_tokenizer, corpus):
    save_model_folder(tiny_model, tiny_tokenizer, corpus / "model")
    done = run_python("-m", "tests.hidden_extension", name, corpus)
    assert done.returncode == 0, done.stderr
