"""Runs `vanilla_transformer/cli/render_card.py`, as `vanilla-transformer render-card` does."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.render_card import main

if __name__ == "__main__":
    sys.exit(run(main))
