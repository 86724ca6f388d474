"""Run `vanilla-transformer write-alignments`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.write_alignments import main

if __name__ == "__main__":
    sys.exit(run(main))
