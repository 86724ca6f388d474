"""Fixtures of the tests of conversion."""

import pytest

from vanilla_transformer.extensions.conversion import common, ctranslate2, marian_npz


@pytest.fixture(autouse=True)
def _short_translations(monkeypatch):
    """Compare the first tokens of translations alone: models with random weights would translate to the limit."""
    for module in (common, ctranslate2, marian_npz):
        monkeypatch.setattr(module, "MAX_NEW_TOKENS", 12)
