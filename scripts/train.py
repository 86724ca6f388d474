"""Run `vanilla-transformer train`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.train import train_command

if __name__ == "__main__":
    sys.exit(run(train_command))
