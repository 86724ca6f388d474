"""Runs `vanilla_transformer/commands/average_checkpoints.py`, as `vanilla-transformer average-checkpoints` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.average_checkpoints import main

if __name__ == "__main__":
    sys.exit(run(main))
