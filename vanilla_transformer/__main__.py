"""Run the command line as `python -m vanilla_transformer`."""

import sys

from vanilla_transformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
