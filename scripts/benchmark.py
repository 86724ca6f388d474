"""Run the benchmarks: all comparisons with other toolkits, or those given by name."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    runpy.run_module("benchmarks.bench_all", run_name="__main__")
