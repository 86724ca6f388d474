"""Run `vanilla-transformer evaluate`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.evaluate import evaluate_command

if __name__ == "__main__":
    sys.exit(run(evaluate_command))
