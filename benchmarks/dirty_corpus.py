"""
Count what the defaults of `clean-corpus` find: `python benchmarks/dirty_corpus.py FOLDER`.

FOLDER has train.en and train.de, and maybe train.fr. Pairs of known kinds are made from some of its
pairs.
"""

import random
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from vanilla_transformer.cli import main

Kinds = dict[str, list[tuple[str, str]]]


def misread(text: str) -> str:
    """Return UTF-8 that was read as Windows-1252."""
    characters = (bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())
    return "".join(characters)


def mark_up(text: str, number: int, tag: str, entity: str) -> str:
    """Put a text into a tag, one of its words into a tag, or an entity into it."""
    first, _, rest = text.partition(" ")
    return (
        f"<p>{text}</p>",
        f"{first} <{tag}>{rest}</{tag.split()[0]}>",
        f"{first}{entity}{rest}",
    )[number % 3]


def copy(text: str, number: int) -> str:
    """Return a text with another form of its spaces or letters, or with an invisible character."""
    forms = ("  ".join(text.split(" ")), text.replace(" ", "\u00a0", 1), f"\u200b{text}")
    return (*forms, unicodedata.normalize("NFD", text.replace(" ", "\u00ad ", 1)))[number % 4]


def make_kinds(sides: list[list[str]], draw: random.Random) -> Kinds:
    """Return the pairs of each kind, of which `other pairs` should stay."""
    rows = draw.sample(range(len(sides[0])), len(sides[0]))
    taken = iter(rows)

    def take(
        count: int, change: Callable[[str, str, int], tuple[str, str]]
    ) -> list[tuple[str, str]]:
        return [
            change(sides[0][row], sides[1][row], number)
            for number, row in zip(range(count), taken, strict=False)
        ]

    def long(text: str, side: int, count: int) -> str:
        return " ".join([text, *draw.choices(sides[side], k=count)])

    shifted = [next(taken) for _ in range(300)]
    kinds: Kinds = {
        "misaligned": [
            (sides[0][row], sides[1][rows[place - 1]]) for place, row in enumerate(shifted) if place
        ],
        "markup": take(
            150,
            lambda s, t, n: (mark_up(s, n, "b", "&nbsp;"), mark_up(t, n, 'a href="x"', " &amp; ")),
        ),
        "long": take(20, lambda s, t, _: (long(s, 0, 110), long(t, 1, 110))),
        "unbalanced": take(20, lambda s, t, _: (s, long(t, 1, 5))),
        "not translated": take(100, lambda s, t, _: (s, s))
        + take(50, lambda s, t, _: (s, f"{s.rstrip('.')}!")),
        "NUL, U+FFFD": take(
            20, lambda s, t, n: (f"{s}\0", t) if n % 2 else (s, f"{t[:5]}\ufffd{t[6:]}")
        ),
        "empty": take(50, lambda s, t, n: (s, "") if n % 2 else ("", t)),
        "no letters": [(f"{n} -- {n} | 3", f"*** {n} *** 3") for n in range(50)],
        "other numbers": take(
            50, lambda s, t, n: (f"{s} It cost {20 + n} euros.", f"{t} Es kostete {90 + n} Euro.")
        ),
    }
    if len(sides) == 3:
        kinds["other language"] = [
            (sides[0][row], sides[2][row]) for row in [next(taken) for _ in range(100)]
        ]
    originals = take(300, lambda s, t, _: (s, t))
    copies = [(copy(s, n), copy(t, n)) for n, (s, t) in enumerate(originals[:200])]
    kinds["pairs and their copies, of which half should stay"] = originals[:200] + copies
    kinds["copies in capitals"] = [(s.upper(), t.upper()) for s, t in originals[200:]]
    rest = [(sides[0][row], sides[1][row]) for row in taken]
    letters = [pair for pair in rest if not pair[1].isascii()][:100]
    kinds["mojibake"] = [(source, misread(target)) for source, target in letters]
    kinds["other pairs"] = originals[200:] + [pair for pair in rest if pair not in letters]
    return kinds


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, which only line feeds end."""
    yield from path.read_bytes().decode().removesuffix("\n").split("\n")


def run(folder: Path) -> None:
    """Write the pairs of all kinds in any order, clean them, and print how many of each kind were
    dropped.
    """
    draw = random.Random(0)
    files = [folder / f"train.{language}" for language in ("en", "de", "fr")]
    kinds = make_kinds(
        [[line.strip() for line in lines(file)] for file in files if file.exists()], draw
    )
    pairs = [pair for found in kinds.values() for pair in found]
    draw.shuffle(pairs)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        words = [
            "clean-corpus",
            "--source_language=en",
            "--target_language=de",
            f"--cache_dir={work / 'cache'}",
        ]
        for side, flag in enumerate(("train_source", "train_target")):
            (work / flag).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
            words.append(f"--{flag}={work / flag}")
        if main([*words, f"--output_dir={work / 'out'}"]):
            sys.exit(2)
        kept = Counter(
            zip(*(lines(work / f"out/train.en-de.{side}") for side in ("en", "de")), strict=True)
        )
    print("\nkind: dropped of pairs")
    for kind, found in kinds.items():
        wanted = Counter((source.strip(), target.strip()) for source, target in found)
        dropped = len(found) - (wanted & kept).total()
        print(f"{kind}: {dropped:,} of {len(found):,} ({100 * dropped / len(found):.1f} %)")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
