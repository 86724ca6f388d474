"""Run `vanilla-transformer convert`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.convert import main

if __name__ == "__main__":
    sys.exit(run(main))
