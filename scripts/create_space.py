"""Run `vanilla-transformer create-space`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.create_space import main

if __name__ == "__main__":
    sys.exit(run(main))
