"""An extension can be deleted, and the rest works."""

import subprocess
import sys

import pytest

from tests.sweeps import sample
from vanilla_transformer.extensions import EXTENSIONS
from vanilla_transformer.loading.model_folders import save_model_folder


@pytest.mark.parametrize("name", sample(EXTENSIONS, "conversion"))
def test_core_works_without_an_extension(name, tiny_model, tiny_tokenizer, corpus):
    save_model_folder(tiny_model, tiny_tokenizer, corpus / "model")
    command = [sys.executable, "-m", "tests.hidden_extension", name, str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
