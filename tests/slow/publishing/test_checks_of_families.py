"""`check-model` for decoder-only, encoder-only and long models, in a process without this package."""

import pytest

from tests.publishable import FAMILIES, family_folder
from vanilla_transformer.cli import main


@pytest.mark.parametrize("family", FAMILIES)
def test_check_model_passes_every_family(family, tmp_path, capsys):
    folder = family_folder(family, tmp_path)
    assert main(["check-model", str(folder)]) == 0, capsys.readouterr().out
    shown = capsys.readouterr().out
    assert "FAIL" not in shown and "same translations" in shown
