"""The demo corpus: short English sentences of Tatoeba with German translations (CC BY 2.0 FR).

`demo_corpus/README.md` has its license, attribution and source. The order is random. No two splits
share a sentence.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.outputs import check_output_dir

from .readers import CorpusSpec, SentencePair, open_corpus, read_pairs

SPLIT_SIZES = {"train": 82_941, "validation": 433, "test": 500}
DEMO_CORPUS_FOLDER = Path(__file__).parent / "demo_corpus"


def read_demo_corpus(split: str, count: int) -> list[SentencePair]:
    """Return the first `count` pairs of a split, which are distinct."""
    if split not in SPLIT_SIZES:
        raise UserError(f"The demo corpus has the splits {', '.join(SPLIT_SIZES)}, got {split!r}.")
    if not 1 <= count <= SPLIT_SIZES[split]:
        raise UserError(
            f"The number of {split} pairs of the demo corpus must be from 1 to "
            f"{SPLIT_SIZES[split]}, got {count}."
        )
    with open_corpus(CorpusSpec(file=str(DEMO_CORPUS_FOLDER / f"{split}.tsv.gz"))) as corpus:
        return list(islice(read_pairs(corpus), count))


def write_demo_corpus(
    folder: str | Path,
    *,
    train: int = SPLIT_SIZES["train"],
    validation: int = SPLIT_SIZES["validation"],
    test: int = SPLIT_SIZES["test"],
) -> dict[str, Path]:
    """
    Write pairs of the splits as text files `train.en`, `train.de` and so on, and return their paths
    by name.

    Their license and attribution are in `README.md` beside them. Files of an earlier call are
    replaced.
    """
    texts: dict[str, Sequence[str]] = {}
    for split, count in {"train": train, "validation": validation, "test": test}.items():
        texts[f"{split}.en"], texts[f"{split}.de"] = zip(
            *read_demo_corpus(split, count), strict=True
        )
    readme = Path(folder) / "README.md"
    notice = (DEMO_CORPUS_FOLDER / "README.md").read_text(encoding="utf-8")
    if not (readme.is_file() and readme.read_bytes() == notice.encode()):
        check_output_dir(folder)
    write_text_atomically(readme, notice)  # first: by it the folder is known
    paths = {}
    for name, lines in texts.items():
        content = (f"{line}\n" for line in lines)
        paths[name] = write_text_atomically(Path(folder) / name, content)
    return paths
