"""Run `vanilla-transformer train-tokenizer`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.train_tokenizer import main

if __name__ == "__main__":
    sys.exit(run(main))
