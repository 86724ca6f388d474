"""Runs `vanilla_transformer/cli/train.py`, as `vanilla-transformer train` does."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.train import main

if __name__ == "__main__":
    sys.exit(run(main))
