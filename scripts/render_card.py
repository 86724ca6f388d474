"""Run `vanilla-transformer render-card`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.render_card import main

if __name__ == "__main__":
    sys.exit(run(main))
