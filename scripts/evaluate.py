"""Runs `vanilla_transformer/commands/evaluate.py`, as `vanilla-transformer evaluate` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(run(main))
