"""Run `vanilla-transformer serve`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.serve import main

if __name__ == "__main__":
    sys.exit(run(main))
