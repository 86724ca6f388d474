"""Runs `vanilla_transformer/commands/train.py`, as `vanilla-transformer train` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.train import main

if __name__ == "__main__":
    sys.exit(run(main))
