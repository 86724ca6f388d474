"""Run `vanilla-transformer back-translate`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.back_translate import main

if __name__ == "__main__":
    sys.exit(run(main))
