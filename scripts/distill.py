"""Run `vanilla-transformer distill`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.distill import main

if __name__ == "__main__":
    sys.exit(run(main))
