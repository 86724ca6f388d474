"""Run `vanilla-transformer calibrate`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.calibrate import main

if __name__ == "__main__":
    sys.exit(run(main))
