"""Runs `vanilla_transformer/commands/serve.py`, as `vanilla-transformer serve` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.serve import main

if __name__ == "__main__":
    sys.exit(run(main))
