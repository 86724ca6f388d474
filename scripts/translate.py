"""Run `vanilla-transformer translate`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.translate import translate_command

if __name__ == "__main__":
    sys.exit(run(translate_command))
