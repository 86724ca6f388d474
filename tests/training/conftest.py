"""A parallel corpus that a tiny model learns in a second."""

import pytest
from accelerate.state import AcceleratorState


@pytest.fixture
def corpus(tmp_path):
    """Sentences of letters; the translation is in capitals."""
    sentences = [" ".join("abcde"[(number * step) % 5] for step in range(1, 3 + number % 4)) for number in range(40)]
    for name, lines in (("train", sentences), ("validation", sentences[:5])):
        (tmp_path / f"{name}.a").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.b").write_text("\n".join(lines).upper() + "\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _fresh_accelerate():
    """Accelerate keeps the first precision that a process asked for."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
