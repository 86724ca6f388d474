"""Run `vanilla-transformer translate`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.translate import main

if __name__ == "__main__":
    sys.exit(run(main))
