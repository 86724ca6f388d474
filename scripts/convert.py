"""Runs `vanilla_transformer/commands/convert.py`, as `vanilla-transformer convert` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.convert import main

if __name__ == "__main__":
    sys.exit(run(main))
