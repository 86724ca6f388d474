"""Run `vanilla-transformer average-checkpoints`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.average_checkpoints import main

if __name__ == "__main__":
    sys.exit(run(main))
