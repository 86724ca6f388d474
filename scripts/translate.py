"""Runs `vanilla_transformer/commands/translate.py`, as `vanilla-transformer translate` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.translate import main

if __name__ == "__main__":
    sys.exit(run(main))
