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
        lines_by_width=1.47,
        comprehensions=143.4,
        nested_comprehensions=9.3,
        conditional_expressions=38.9,
        nodes=29,
        vague_names=830,
        bare_any=8.9,
    ),
    "tests": Density(
        lines_by_width=1.55,
        comprehensions=131.6,
        nested_comprehensions=6.1,
        conditional_expressions=10.6,
        nodes=28,
        vague_names=1005,
        bare_any=13.5,
    ),
}


@pytest.mark.parametrize("folder", DENSITY)
def test_density_only_falls(folder):
    limits = asdict(DENSITY[folder])
    figures = asdict(measure(ROOT / folder))
    risen = {name: figure for name, figure in figures.items() if round(figure, 2) > limits[name]}
    assert not risen, "Write one step a statement; tools/density.py prints the worst statements."
