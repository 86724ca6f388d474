"""Run `vanilla-transformer tune-reranking`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.tune_reranking import main

if __name__ == "__main__":
    sys.exit(run(main))
