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
        lines_by_width=1.37,
        comprehensions=110.6,
        nested_comprehensions=0.5,
        conditional_expressions=33.4,
        nodes=27,
        vague_names=42,
        bare_any=5.2,
    ),
    "tests": Density(
        lines_by_width=1.53,
        comprehensions=129.8,
        nested_comprehensions=5.8,
        conditional_expressions=10.7,
        nodes=28,
        vague_names=1009,
        bare_any=13.0,
    ),
}


@pytest.mark.parametrize("folder", DENSITY)
def test_density_only_falls(folder):
    limits = asdict(DENSITY[folder])
    figures = asdict(measure(ROOT / folder))
    risen = {name: figure for name, figure in figures.items() if round(figure, 2) > limits[name]}
    assert not risen, "Write one step a statement; tools/density.py prints the worst statements."
