"""Run the benchmarks: all comparisons with other toolkits, or those given by name."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    program = Path(__file__).parents[1] / "benchmarks" / "benchmark.py"
    sys.path.insert(0, str(program.parent))
    runpy.run_path(str(program), run_name="__main__")
