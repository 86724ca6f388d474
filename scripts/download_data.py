"""Run `vanilla-transformer download-data`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.download_data import main

if __name__ == "__main__":
    sys.exit(run(main))
