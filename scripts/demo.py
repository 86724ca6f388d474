"""Run `vanilla-transformer demo`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.demo import main

if __name__ == "__main__":
    sys.exit(run(main))
