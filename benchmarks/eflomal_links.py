"""Word alignments by eflomal (Östling and Tiedemann, 2016) in both directions, where it is installed."""

import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.ibm_model_2 import Links, words
from vanilla_transformer.data.readers import SentencePair


def is_installed() -> bool:
    return find_spec("eflomal") is not None


def align_both_ways(pairs: Sequence[SentencePair], count: int) -> tuple[Links, Links]:
    """Fit both directions to the pairs and return the links of the first `count` ones in each of them."""
    from eflomal import Aligner

    sources, targets = ([" ".join(words(pair[side])) + "\n" for pair in pairs] for side in (0, 1))
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder) / name) for name in ("forward", "backward")]
        Aligner().align(sources, targets, links_filename_fwd=names[0], links_filename_rev=names[1])
        forward, backward = (_read(Path(name), count) for name in names)
    return forward, backward


def _read(path: Path, count: int) -> Links:
    lines = path.read_text().splitlines()[:count]
    return [{(int(source), int(target)) for source, _, target in map(_parts, line.split())} for line in lines]


def _parts(text: str) -> tuple[str, str, str]:
    return text.partition("-")
