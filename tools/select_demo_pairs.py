"""Select the demo corpus from the English-German pairs of Tatoeba:
`python -m tools.select_demo_pairs FOLDER`.

FOLDER holds `train.en`, `train.de`, `val.en` and `val.de`, as `recipes/tatoeba_en_de.yaml` reads
them.
"""

import gzip
import random
import re
import sys
from pathlib import Path

Pair = tuple[str, str]
MOST_WORDS = 6
VALIDATION_PAIRS = 433
TARGET = Path(__file__).parents[1] / "vanilla_transformer" / "data" / "demo_corpus"


def read_short_pairs(folder: Path, split: str) -> list[Pair]:
    """Return the distinct pairs with 2 to 6 English and 1 to 6 German words."""
    sides = [
        (folder / f"{split}.{end}").read_text(encoding="utf-8").splitlines() for end in ("en", "de")
    ]
    pairs = dict.fromkeys(zip(*sides, strict=True))
    return [
        (source, target)
        for source, target in pairs
        if _is_short(source, 2) and _is_short(target, 1)
    ]


def _is_short(sentence: str, fewest: int) -> bool:
    return fewest <= len(sentence.split()) <= MOST_WORDS and "\t" not in sentence


def normalize(sentence: str) -> str:
    """Return the words of a sentence without case and punctuation."""
    return " ".join(re.findall(r"\w+", sentence.casefold()))


def drop_known(pairs: list[Pair], held_out: list[Pair]) -> list[Pair]:
    """Return the pairs that share no normalized sentence with `held_out`, in either language."""
    sources, targets = ({normalize(pair[side]) for pair in held_out} for side in (0, 1))
    return [
        pair
        for pair in pairs
        if normalize(pair[0]) not in sources and normalize(pair[1]) not in targets
    ]


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main(folder: str) -> None:
    held_out = read_short_pairs(Path(folder), "val")
    validation, test = held_out[:VALIDATION_PAIRS], held_out[VALIDATION_PAIRS:]
    train = drop_known(read_short_pairs(Path(folder), "train"), held_out)
    random.Random(0).shuffle(train)
    TARGET.mkdir(exist_ok=True)
    for name, pairs in (
        ("train", train),
        ("validation", drop_known(validation, test)),
        ("test", test),
    ):
        write_pairs(TARGET / f"{name}.tsv.gz", pairs)
        print(f"{name}: {len(pairs):,} pairs")


if __name__ == "__main__":
    main(*sys.argv[1:])
