"""Fixtures of the tests of conversion."""

import pytest


@pytest.fixture(autouse=True)
def _short_translations(monkeypatch):
    """Compare the first tokens of translations alone: models with random weights would translate to
    the limit. The command compares a few sentences where none are given.
    """
    for module in ("ctranslate2", "comparison"):  # whose value the others import
        monkeypatch.setattr(
            f"vanilla_transformer.extensions.conversion.{module}.MAX_NEW_TOKENS", 12
        )
    monkeypatch.setattr("vanilla_transformer.extensions.conversion.commands._SENTENCES", 5)
