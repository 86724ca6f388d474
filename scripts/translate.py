"""Runs `vanilla_transformer/cli/translate.py`, as `vanilla-transformer translate` does."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.translate import main

if __name__ == "__main__":
    sys.exit(run(main))
