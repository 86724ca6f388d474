"""Runs `vanilla_transformer/commands/render_card.py`, as `vanilla-transformer render-card` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.render_card import main

if __name__ == "__main__":
    sys.exit(run(main))
