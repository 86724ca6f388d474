"""Run `vanilla-transformer evaluate-directions`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.evaluate_directions import main

if __name__ == "__main__":
    sys.exit(run(main))
