"""Generate the demo corpus: `python -m tools.demo_corpus [FOLDER]`, by default the files that the package ships."""

import argparse
from pathlib import Path

from .generation import SPLIT_SIZES, write_split

SHIPPED = Path(__file__).parents[2] / "vanilla_transformer" / "data" / "demo_corpus"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.demo_corpus", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SHIPPED, help="Folder for train.tsv.gz and so on.")
    for split, size in SPLIT_SIZES.items():
        parser.add_argument(f"--{split}", type=int, default=size, help=f"Number of {split} pairs.")
    parser.add_argument("--seed", type=int, default=0, help="Seed; another seed gives other pairs of the same splits.")
    options = parser.parse_args()
    for split in SPLIT_SIZES:
        print(*write_split(options.folder, split, getattr(options, split), options.seed), sep="\n")


if __name__ == "__main__":
    main()
