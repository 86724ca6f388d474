"""Run `vanilla-transformer score`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.score import main

if __name__ == "__main__":
    sys.exit(run(main))
