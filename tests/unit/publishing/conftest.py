"""Checks without a new process, which takes seconds and has its own tests."""

import pytest

from vanilla_transformer.publishing import checks


@pytest.fixture
def without_new_process(monkeypatch):
    """Skip the checks in a new process, and return the list of the folders that it would have
    loaded.
    """
    loaded = []
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: loaded.append(folder) or [])
    return loaded
