"""Runs `vanilla_transformer/cli/evaluate.py`, as `vanilla-transformer evaluate` does."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.evaluate import main

if __name__ == "__main__":
    sys.exit(run(main))
