"""Runs `vanilla_transformer/commands/write_corpus.py`, as `vanilla-transformer write-corpus` does."""

import sys

from vanilla_transformer.commands import run
from vanilla_transformer.commands.write_corpus import main

if __name__ == "__main__":
    sys.exit(run(main))
