"""Run `vanilla-transformer evaluate`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.evaluate import main

if __name__ == "__main__":
    sys.exit(run(main))
