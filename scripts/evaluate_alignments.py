"""Run `vanilla-transformer evaluate-alignments`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.evaluate_alignments import main

if __name__ == "__main__":
    sys.exit(run(main))
