"""Run `vanilla-transformer push-to-hub`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.push_to_hub import main

if __name__ == "__main__":
    sys.exit(run(main))
