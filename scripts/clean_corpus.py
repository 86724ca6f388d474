"""Run `vanilla-transformer clean-corpus`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.clean_corpus import main

if __name__ == "__main__":
    sys.exit(run(main))
