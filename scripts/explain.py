"""Run `vanilla-transformer explain`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.explain import main

if __name__ == "__main__":
    sys.exit(run(main))
