"""Run `vanilla-transformer choose-alignment-head`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.choose_alignment_head import main

if __name__ == "__main__":
    sys.exit(run(main))
