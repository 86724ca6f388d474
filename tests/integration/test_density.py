"""How densely the code is written: figures that only fall.

`python tools/density.py` prints them, and the statements that are hardest to read.
"""

from dataclasses import asdict
from pathlib import Path

import pytest

from tools.density import Density, measure

ROOT = Path(__file__).parents[2]
DENSITY = {
    "vanilla_transformer": Density(
        lines_by_width=1.24,
        comprehensions=78.3,
        nested_comprehensions=0.0,
        conditional_expressions=23.6,
        nodes=24,
        vague_names=29,
        bare_any=2.5,
    ),
    "tests": Density(
        lines_by_width=1.15,
        comprehensions=65.2,
        nested_comprehensions=0.1,
        conditional_expressions=6.7,
        nodes=22,
        vague_names=0,
        bare_any=0.6,
    ),
}


@pytest.mark.parametrize("folder", DENSITY)
def test_density_only_falls(folder):
    limits = asdict(DENSITY[folder])
    figures = asdict(measure(ROOT / folder))
    risen = {name: figure for name, figure in figures.items() if round(figure, 2) > limits[name]}
    assert not risen, "Write one step a statement; tools/density.py prints the worst statements."
