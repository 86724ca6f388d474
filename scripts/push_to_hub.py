"""Run `vanilla-transformer push-to-hub`."""

import sys

from vanilla_transformer.cli import run
from vanilla_transformer.cli.publish import push_to_hub_command

if __name__ == "__main__":
    sys.exit(run(push_to_hub_command))
