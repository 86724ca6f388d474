"""Runs `vanilla_transformer/cli/serve.py`, as `vanilla-transformer serve` does."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.serve import main

if __name__ == "__main__":
    sys.exit(run(main))
