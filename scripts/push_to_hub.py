"""Runs `vanilla_transformer/cli/push_to_hub.py`, as `vanilla-transformer push-to-hub` does."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.push_to_hub import main

if __name__ == "__main__":
    sys.exit(run(main))
