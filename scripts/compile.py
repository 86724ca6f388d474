"""Run `vanilla-transformer compile`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.compile import main

if __name__ == "__main__":
    sys.exit(run(main))
