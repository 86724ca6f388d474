"""Runs `vanilla_transformer/commands/demo.py`, as `vanilla-transformer demo` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.demo import main

if __name__ == "__main__":
    sys.exit(run(main))
