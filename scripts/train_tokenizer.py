"""Runs `vanilla_transformer/commands/train_tokenizer.py`, as `vanilla-transformer train-tokenizer` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.train_tokenizer import main

if __name__ == "__main__":
    sys.exit(run(main))
