"""Run `vanilla-transformer check-model`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.check_model import main

if __name__ == "__main__":
    sys.exit(run(main))
